//! Tests of texts with recorded repetitions, which are shared without a search.

use json::{JsonNode, RepeatedObject, ValueKind};

use super::*;

/// Returns a text that records those repeated objects for which `is_noted` returns true.
fn record_repetitions(text: &str, mut is_noted: impl FnMut() -> bool) -> JsonTree {
    let document = JsonDocument::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let mut objects = Vec::new();
    collect_repetitions(document.root(), &mut Vec::new(), &mut objects, &mut is_noted);
    JsonTree::Repeating(document.text().clone(), objects.into())
}

fn collect_repetitions<'d>(
    node: JsonNode<'d>,
    firsts: &mut Vec<JsonNode<'d>>,
    objects: &mut Vec<RepeatedObject>,
    is_noted: &mut impl FnMut() -> bool,
) {
    if node.kind() == ValueKind::Object {
        let first = firsts.iter().find(|first| first.text() == node.text());
        if let Some(first) = first.filter(|_| is_noted()) {
            let (at, first, length) = (node.start(), first.start(), node.text().len());
            objects.push(RepeatedObject { position: at, first_position: first, length });
            return;
        }
    }
    node.members().for_each(|(_, value)| collect_repetitions(value, firsts, objects, is_noted));
    node.items().for_each(|item| collect_repetitions(item, firsts, objects, is_noted));
    if node.kind() == ValueKind::Object {
        firsts.push(node);
    }
}

fn encode_tree(tree: &JsonTree, form: DedupForm) -> Option<String> {
    encode(tree, form, &ALL_SIZES).map(|tree| tree_text(&tree))
}

#[test]
fn recorded_repetitions_are_shared_without_a_search() {
    let post = format!(r#"{{"title":"On Engines","by":{ADA}}}"#);
    let bob = r#"{"id":2,"name":"Charles Babbage"}"#;
    let plain = format!(r#"{{"data":[{post},{ADA},{bob},{post},{bob},{ADA}]}}"#);
    let mut notes = [true, true, false, true].into_iter();
    let tree = record_repetitions(&plain, || notes.next().unwrap());
    let entry = post.replace(ADA, r#"{"$":0}"#);
    let list = format!(r#"[{{"$":1}},{{"$":0}},{bob},{{"$":1}},{bob},{{"$":0}}]"#);
    assert_eq!(
        encode_tree(&tree, DedupForm::GraphQl).unwrap(),
        format!(r#"{{"t":[{ADA},{entry}],"data":{list}}}"#)
    );
    let json = format!(r#"{{"t":[{ADA},{entry}],"r":{{"data":{list}}}}}"#);
    assert_eq!(encode_tree(&tree, DedupForm::Json).unwrap(), json);
    assert_eq!(decode_string(&json), plain);
    assert_eq!(tree_text(&tree), plain);
}

#[test]
fn searches_if_recorded_repetitions_save_too_little() {
    let bob = r#"{"id":2,"name":"Charles Babbage"}"#;
    let plain = format!("[{ADA},{ADA},{}]", [bob; 20].join(","));
    let mut notes = std::iter::once(true).chain(std::iter::repeat(false));
    let tree = record_repetitions(&plain, || notes.next().unwrap());
    assert_eq!(encode_tree(&tree, DedupForm::Json), encode_string(&plain, DedupForm::Json));
}

#[test]
fn nested_repetitions_stay_within_the_depth_limit() {
    let nested = |depth: usize, text: &str| format!("{}{text}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"list":{}}}"#, nested(100, ADA));
    for (depth, is_shared) in [(json::DEPTH - 105, true), (json::DEPTH - 104, false)] {
        let plain = format!("[{deep},{},{deep}]", nested(depth, &deep));
        let text = JsonTree::Text(Bytes::from(deep.clone()));
        let lists = (0..depth).fold(text.clone(), |tree, _| JsonTree::Array(Arc::new([tree])));
        for tree in
            [record_repetitions(&plain, || true), JsonTree::Array(Arc::new([text.clone(), lists, text]))]
        {
            let wire = encode_tree(&tree, DedupForm::Json);
            assert_eq!(wire.is_some(), is_shared, "{depth}");
            assert!(wire.is_none_or(|wire| decode_string(&wire) == plain));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_text_with_recorded_repetitions_is_restored(text in any_text(), coins: u64) {
        let mut coins = coins;
        let tree = record_repetitions(&text, || { coins = coins.rotate_left(1); coins & 1 == 1 });
        let values = SharedValues::new(&tree, text.len()).unwrap();
        for form in [DedupForm::Json, DedupForm::GraphQl] {
            let laid_out = [EqualityCriterion::KnownRepetitions, EqualityCriterion::SameText].map(|equal| encode_flattened(&tree, &values, form, equal));
            for wire in laid_out.into_iter().flatten().map(|tree| tree_text(&tree)).chain(encode_tree(&tree, form)) {
                prop_assert_eq!(decode_string(&wire), strip_spaces(&text));
                prop_assert!(wire.len() * 10 <= text.len() * 9);
            }
        }
    }
}
