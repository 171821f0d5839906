//! Tests of texts with recorded repetitions, which are shared without a search.

use json::{Again, Kind, Node};

use super::*;

/// Returns a text that records those repeated objects for which `is_noted` returns true.
fn noted(text: &str, mut is_noted: impl FnMut() -> bool) -> Tree {
    let document = Document::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let mut again = Vec::new();
    note(document.root(), &mut Vec::new(), &mut again, &mut is_noted);
    Tree::Repeating(document.text().clone(), again.into())
}

fn note<'d>(
    node: Node<'d>,
    firsts: &mut Vec<Node<'d>>,
    again: &mut Vec<Again>,
    is_noted: &mut impl FnMut() -> bool,
) {
    if node.kind() == Kind::Object {
        let first = firsts.iter().find(|first| first.text() == node.text());
        if let Some(first) = first.filter(|_| is_noted()) {
            let (at, first, length) = (node.start(), first.start(), node.text().len());
            again.push(Again { at, first, length });
            return;
        }
    }
    node.members().for_each(|(_, value)| note(value, firsts, again, is_noted));
    node.items().for_each(|item| note(item, firsts, again, is_noted));
    if node.kind() == Kind::Object {
        firsts.push(node);
    }
}

fn wire(tree: &Tree, form: Form) -> Option<String> {
    encode(tree, form, &ALL).map(|tree| text_of(&tree))
}

#[test]
fn recorded_repetitions_are_shared_without_a_search() {
    let post = format!(r#"{{"title":"On Engines","by":{ADA}}}"#);
    let bob = r#"{"id":2,"name":"Charles Babbage"}"#;
    let plain = format!(r#"{{"data":[{post},{ADA},{bob},{post},{bob},{ADA}]}}"#);
    let mut notes = [true, true, false, true].into_iter();
    let tree = noted(&plain, || notes.next().unwrap());
    let entry = post.replace(ADA, r#"{"$":0}"#);
    let list = format!(r#"[{{"$":1}},{{"$":0}},{bob},{{"$":1}},{bob},{{"$":0}}]"#);
    assert_eq!(wire(&tree, Form::GraphQl).unwrap(), format!(r#"{{"t":[{ADA},{entry}],"data":{list}}}"#));
    let json = format!(r#"{{"t":[{ADA},{entry}],"r":{{"data":{list}}}}}"#);
    assert_eq!(wire(&tree, Form::Json).unwrap(), json);
    assert_eq!(decoded(&json), plain);
    assert_eq!(text_of(&tree), plain);
}

#[test]
fn searches_if_recorded_repetitions_save_too_little() {
    let bob = r#"{"id":2,"name":"Charles Babbage"}"#;
    let plain = format!("[{ADA},{ADA},{}]", [bob; 20].join(","));
    let mut notes = std::iter::once(true).chain(std::iter::repeat(false));
    let tree = noted(&plain, || notes.next().unwrap());
    assert_eq!(wire(&tree, Form::Json), encoded(&plain, Form::Json));
}

#[test]
fn nested_repetitions_stay_within_the_depth_limit() {
    let nested = |depth: usize, text: &str| format!("{}{text}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"list":{}}}"#, nested(100, ADA));
    for (depth, is_shared) in [(json::DEPTH - 105, true), (json::DEPTH - 104, false)] {
        let plain = format!("[{deep},{},{deep}]", nested(depth, &deep));
        let text = Tree::Text(Bytes::from(deep.clone()));
        let lists = (0..depth).fold(text.clone(), |tree, _| Tree::Array(Arc::new([tree])));
        for tree in [noted(&plain, || true), Tree::Array(Arc::new([text.clone(), lists, text]))] {
            let wire = wire(&tree, Form::Json);
            assert_eq!(wire.is_some(), is_shared, "{depth}");
            assert!(wire.is_none_or(|wire| decoded(&wire) == plain));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_text_with_recorded_repetitions_is_restored(text in any_text(), coins: u64) {
        let mut coins = coins;
        let tree = noted(&text, || { coins = coins.rotate_left(1); coins & 1 == 1 });
        let known = Known::new(&tree, text.len()).unwrap();
        for form in [Form::Json, Form::GraphQl] {
            let laid_out = [Equal::Known, Equal::Spelt].map(|equal| laid_out(&tree, &known, form, equal));
            for wire in laid_out.into_iter().flatten().map(|tree| text_of(&tree)).chain(wire(&tree, form)) {
                prop_assert_eq!(decoded(&wire), tidy(&text));
                prop_assert!(wire.len() * 10 <= text.len() * 9);
            }
        }
    }
}
