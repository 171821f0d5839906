//! Tests of the guarantees of deduplication, by example and on arbitrary texts.

mod arbitrary_texts;
mod javascript;
mod recorded_repetitions;

use std::sync::Arc;

use bytes::Bytes;
use json::{JsonDocument, JsonTree};
use proptest::prelude::*;

use self::arbitrary_texts::any_text;
use super::*;

const CAP: usize = 1 << 20;
const ALL_SIZES: DedupLimits = DedupLimits { min: 0, max: 1 << 20 };
const ADA: &str = r#"{"id":1,"name":"Ada Lovelace"}"#;

fn encode_string(text: &str, form: DedupForm) -> Option<String> {
    let encoded = encode_text(&Bytes::copy_from_slice(text.as_bytes()), form, &ALL_SIZES).unwrap();
    encoded.map(|encoded| String::from_utf8(encoded).unwrap())
}

fn decode_string(text: &str) -> String {
    String::from_utf8(decode(text.as_bytes(), CAP).unwrap()).unwrap()
}

fn tree_text(tree: &JsonTree) -> String {
    let mut text = Vec::new();
    tree.write(&mut text);
    String::from_utf8(text).unwrap()
}

/// Returns a text without the white space between its tokens.
fn strip_spaces(text: &str) -> String {
    let document = JsonDocument::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    String::from_utf8(flatten::strip_whitespace(&document)).unwrap()
}

#[test]
fn a_repeated_object_is_written_once_and_referenced() {
    let plain = format!(r#"{{"a":{ADA},"b":[{ADA},{ADA}]}}"#);
    let json = format!(r#"{{"t":[{ADA}],"r":{{"a":{{"$":0}},"b":[{{"$":0}},{{"$":0}}]}}}}"#);
    assert_eq!(encode_string(&plain, DedupForm::Json).unwrap(), json);
    let graphql = format!(r#"{{"t":[{ADA}],"a":{{"$":0}},"b":[{{"$":0}},{{"$":0}}]}}"#);
    assert_eq!(encode_string(&plain, DedupForm::GraphQl).unwrap(), graphql);
    assert_eq!([json, graphql].map(|text| decode_string(&text)), [plain.clone(), plain]);
}

#[test]
fn entries_refer_to_earlier_ones_and_nested_repetitions_are_not_entries() {
    let post = format!(
        r#"{{"title":"Notes on the Engine","by":{ADA},"at":{{"place":"London, St James's Square"}}}}"#
    );
    let plain = format!("[{ADA},{post},{post},{post}]");
    let entry = post.replace(ADA, r#"{"$":0}"#);
    let wire = format!(r#"{{"t":[{ADA},{entry}],"r":[{{"$":0}},{{"$":1}},{{"$":1}},{{"$":1}}]}}"#);
    assert_eq!(encode_string(&plain, DedupForm::Json).unwrap(), wire);
    assert_eq!(decode_string(&wire), plain);
}

#[test]
fn preserves_spelling_and_treats_different_spellings_as_different_values() {
    let one = r#"{"n":12345678901234567890.0e+1,"\u0061":"\ud800","a":0}"#;
    let other = one.replace("12345678901234567890.0e+1", "123456789012345678900");
    let plain = format!("[{one},{one},{one},{other},{other},{other}]");
    let wire = encode_string(&plain, DedupForm::Json).unwrap();
    assert_eq!(wire.matches("12345678901234567890").count(), 2);
    assert_eq!(decode_string(&wire), plain);
}

#[test]
fn distinguishes_names_of_dollar_signs_from_references() {
    for (object, escaped) in [
        (r#"{"$":0}"#, r#"{"$$":0}"#),
        (r#"{"$$":0}"#, r#"{"$$$":0}"#),
        (r#"{"\u0024":[{"$":1}]}"#, r#"{"$\u0024":[{"$$":1}]}"#),
        (r#"{"$\u0024":{"$":{}}}"#, r#"{"$$\u0024":{"$$":{}}}"#),
    ] {
        let plain = format!("[{object},{ADA},{ADA},{ADA},{ADA}]");
        let wire = encode_string(&plain, DedupForm::Json).unwrap();
        assert!(wire.contains(&format!("[{escaped},")), "{wire}");
        assert_eq!(decode_string(&wire), plain);
    }
    let kept = format!(r#"[{{"$":0,"a":1}},{{"a$":0}},{{}},{ADA},{ADA},{ADA}]"#);
    assert!(encode_string(&kept, DedupForm::Json).unwrap().contains(r#"[{"$":0,"a":1},{"a$":0},{},"#));
}

#[test]
fn texts_without_a_form_or_sufficient_savings_stay_plain() {
    let thrice = format!("[{ADA},{ADA},{ADA}]");
    assert!(encode_string(&thrice, DedupForm::Json).is_some());
    for root in ["t", "r", "\\u0074", "$"] {
        let plain = format!(r#"{{"{root}":{thrice}}}"#);
        assert_eq!(encode_string(&plain, DedupForm::GraphQl), None, "{plain}");
        assert_eq!(decode_string(&encode_string(&plain, DedupForm::Json).unwrap()), plain);
    }
    assert_eq!(encode_string(&thrice, DedupForm::GraphQl), None);
    assert_eq!(encode_string(&format!(r#"[{{"$":1,"$":2}},{thrice}]"#), DedupForm::Json), None);
    assert_eq!(encode_string(&format!(r#"["{}",{ADA},{ADA}]"#, "x".repeat(400)), DedupForm::Json), None);
    let text = Bytes::from(thrice);
    let limits = |min, max| encode_text(&text, DedupForm::Json, &DedupLimits { min, max }).unwrap();
    assert_eq!((limits(text.len() + 1, CAP), limits(0, text.len() - 1)), (None, None));
}

#[test]
fn texts_and_trees_with_too_many_objects_stay_plain() {
    let limits = DedupLimits::default();
    for (count, is_encoded) in [(hash_cons::MAX_OBJECTS, true), (hash_cons::MAX_OBJECTS + 1, false)] {
        let text = Bytes::from(format!("[{}]", vec![ADA; count].join(",")));
        let encoded = encode_text(&text, DedupForm::Json, &limits).unwrap();
        assert_eq!(encoded.is_some(), is_encoded, "{count} equal objects");
        let dollars = vec![r#"{"$":0}"#; count - 4].join(",");
        let text = Bytes::from(format!("[[{ADA},{ADA},{ADA},{ADA}],{dollars}]"));
        let document = JsonDocument::new(text).unwrap();
        let numbered = hash_cons::number_objects(
            &document,
            &SharedParts::default(),
            DedupForm::Json,
            EqualityCriterion::SameText,
        );
        assert_eq!(numbered.is_some(), is_encoded, "{count} objects and names of dollar signs");
        let item = JsonTree::Text(ADA.into());
        let tree = JsonTree::Array(vec![item; count].into());
        assert_eq!(
            encode(&tree, DedupForm::Json, &limits).is_some(),
            is_encoded,
            "a tree of {count} objects"
        );
    }
}

#[test]
fn texts_whose_index_is_large_stay_plain() {
    let nested = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let text = |arrays: usize| {
        let arrays = vec![nested.as_str(); arrays].join(",");
        Bytes::from(format!("[{},[{arrays}]]", vec![ADA; 40_000].join(",")))
    };
    let is_encoded =
        |text: &Bytes| encode_text(text, DedupForm::Json, &DedupLimits::default()).unwrap().is_some();
    let (few, many) = (text(100), text(700));
    assert!(is_encoded(&few));
    assert!(JsonDocument::new(many.clone()).unwrap().index_bytes() > INDEX_BYTES);
    assert!(!is_encoded(&many));
}

#[test]
fn rejects_text_that_is_not_json() {
    for text in [format!("{ADA}{ADA}{ADA}"), format!("[{ADA},{ADA},{ADA}"), String::new()] {
        assert!(encode_text(&Bytes::from(text), DedupForm::Json, &ALL_SIZES).is_err());
    }
}

#[test]
fn encodes_and_decodes_deep_nesting() {
    let nested = |depth: usize| format!("{}{ADA}{}", r#"{"within":"#.repeat(depth), "}".repeat(depth));
    for depth in [10, json::DEPTH - 4] {
        let plain = format!("[{},{}]", nested(depth), nested(depth));
        assert_eq!(decode_string(&encode_string(&plain, DedupForm::Json).unwrap()), plain);
    }
    let deepest = format!("[{},{ADA},{ADA}]", nested(json::DEPTH - 2));
    assert_eq!(encode_string(&deepest, DedupForm::Json), None);
}

#[test]
fn values_that_share_memory_equal_values_with_the_same_text() {
    let text = Bytes::from_static(ADA.as_bytes());
    let ada = || JsonTree::Text(text.clone());
    let name = || Bytes::from_static(b"\"by\"");
    let post = |by: JsonTree| {
        JsonTree::Object(Arc::new([(name(), by), (Bytes::from_static(b"\"n\""), JsonTree::NULL)]))
    };
    let json_tree = post(ada());
    let spelt = post(JsonTree::Text(Bytes::from(ADA.to_owned())));
    let more: Arc<[json::TreeMember]> = Arc::new([(name(), ada())]);
    let extended = JsonTree::Extended(Bytes::from_static(br#"{ "title" : "On Engines" }"#), more);
    let short = JsonTree::Object(Arc::new([(name(), JsonTree::NULL)]));
    let items =
        [ada(), json_tree.clone(), json_tree, spelt, extended.clone(), extended, short.clone(), short];
    let tree = JsonTree::Array(Arc::new(items));
    let mut plain = Vec::new();
    tree.write(&mut plain);
    let values = SharedValues::new(&tree, tree.len()).unwrap();
    let wire =
        tree_text(&encode_flattened(&tree, &values, DedupForm::Json, EqualityCriterion::SameText).unwrap());
    let post = r#"{"by":{"$":0},"n":null}"#;
    let extended = r#"{"title":"On Engines","by":{"$":0}}"#;
    let short = r#"{"by":null}"#;
    let list = r#"{"$":0},{"$":1},{"$":1},{"$":1},{"$":2},{"$":2}"#;
    let known = format!(r#"{{"t":[{ADA},{post},{extended}],"r":[{list},{short},{short}]}}"#);
    assert_eq!(wire, known);
    assert_eq!(decode_string(&wire), strip_spaces(&String::from_utf8(plain).unwrap()));
}

#[test]
fn encodes_values_that_share_memory_without_a_search() {
    let text = Bytes::from_static(ADA.as_bytes());
    let ada = || JsonTree::Text(text.clone());
    let more: Arc<[json::TreeMember]> = Arc::new([(Bytes::from_static(b"\"by\""), ada())]);
    let post = JsonTree::Extended(Bytes::from_static(br#"{"title":"On Engines"}"#), more);
    let spelt = JsonTree::Text(Bytes::from(ADA.to_owned()));
    let list = |items: &[&JsonTree]| JsonTree::Array(items.iter().copied().cloned().collect());
    let wire = |tree: &JsonTree, form| {
        let values = SharedValues::new(tree, tree.len()).unwrap();
        let pays = values.saves_enough(tree.len()).then(|| values.write_encoded(tree, form, tree.len()))?;
        pays.map(|tree| tree_text(&tree))
    };
    let tree = list(&[&post, &ada(), &post, &spelt]);
    let table = format!(r#"{{"t":[{ADA},{{"title":"On Engines","by":{{"$":0}}}}]"#);
    let known = format!(r#"{table},"r":[{{"$":1}},{{"$":0}},{{"$":1}},{ADA}]}}"#);
    assert_eq!(wire(&tree, DedupForm::Json), Some(known));
    let answer = |name: &'static [u8]| JsonTree::Object(Arc::new([(Bytes::from_static(name), tree.clone())]));
    let known = format!(r#"{table},"data":[{{"$":1}},{{"$":0}},{{"$":1}},{ADA}]}}"#);
    assert_eq!(wire(&answer(b"\"data\""), DedupForm::GraphQl), Some(known));
    for name in [&b"\"t\""[..], b"\"$a\"", b"\"\\u0074\""] {
        assert_eq!(wire(&answer(name), DedupForm::GraphQl), None);
    }
    assert_eq!(wire(&list(&[&spelt, &ada()]), DedupForm::Json), None, "equal, but not known to be the same");
    let reference = JsonTree::Text(Bytes::from_static(br#"{"$":0}"#));
    assert_eq!(wire(&list(&[&reference, &post, &post, &post]), DedupForm::Json), None, "needs a closer look");
}

#[test]
fn the_items_of_a_shared_list_are_known_repetitions() {
    let post = |title: &'static [u8]| {
        let more: Arc<[json::TreeMember]> = Arc::new([(Bytes::from_static(b"\"by\""), JsonTree::NULL)]);
        JsonTree::Extended(Bytes::from_static(title), more)
    };
    let posts =
        JsonTree::Array(Arc::new([post(br#"{"title":"On Engines"}"#), post(br#"{"title":"On Numbers"}"#)]));
    let author = |name: &'static [u8]| {
        let more: Arc<[json::TreeMember]> = Arc::new([(Bytes::from_static(b"\"posts\""), posts.clone())]);
        JsonTree::Extended(Bytes::from_static(name), more)
    };
    let tree =
        JsonTree::Array(Arc::new([author(br#"{"n":1}"#), author(br#"{"n":2}"#), author(br#"{"n":3}"#)]));
    let values = SharedValues::new(&tree, tree.len()).unwrap();
    let wire = tree_text(&values.write_encoded(&tree, DedupForm::Json, tree.len()).unwrap());
    assert_eq!(wire.matches("On Engines").count(), 1, "{wire}");
    assert_eq!(decode_string(&wire), tree_text(&tree));
}

#[test]
fn values_too_deep_for_the_form_stay_plain() {
    let deep =
        |depth: usize| Bytes::from(format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1)));
    let twice = |depth: usize| {
        let text = JsonTree::Text(deep(depth));
        JsonTree::Array(Arc::new([text.clone(), text]))
    };
    for form in [DedupForm::Json, DedupForm::GraphQl] {
        let tree = |depth: usize| match form {
            DedupForm::Json => twice(depth + 1),
            DedupForm::GraphQl => {
                JsonTree::Object(Arc::new([(Bytes::from_static(b"\"data\""), twice(depth))]))
            }
        };
        let deepest = tree(json::DEPTH - 4);
        let wire = tree_text(&encode(&deepest, form, &ALL_SIZES).unwrap());
        assert_eq!(decode_string(&wire), tree_text(&deepest));
        for depth in [json::DEPTH - 3, json::DEPTH - 2, json::DEPTH - 1] {
            assert!(encode(&tree(depth), form, &ALL_SIZES).is_none(), "{depth}");
        }
    }
    let many = format!(r#"{{"a":[{}]}}"#, vec!["[{}]"; 2000].join(","));
    let many = JsonTree::Text(Bytes::from(many));
    let tree = JsonTree::Array(Arc::new([many.clone(), many]));
    assert_eq!(
        decode_string(&tree_text(&encode(&tree, DedupForm::Json, &ALL_SIZES).unwrap())),
        tree_text(&tree),
        "many, and not deep"
    );
}

#[test]
fn rejects_hostile_texts_with_a_code() {
    let error = |text: &str| decode(text.as_bytes(), CAP).unwrap_err();
    assert_eq!(error("[1"), DecodeError::NotJson(json::JsonError::NotJson(2)));
    for text in ["[]", r#"{"r":1}"#, r#"{"r":1,"t":[]}"#, r#"{"t":{}}"#, "7"] {
        assert_eq!(error(text).code(), "not-deduplicated", "{text}");
    }
    for reference in ["0", "1", "-1", "0.0", r#""0""#, "null", "[0]", "1e400", "99999999999999999999"] {
        let itself = format!(r#"{{"t":[{{"a":{{"$":{reference}}}}}],"r":0}}"#);
        assert_eq!(error(&itself), DecodeError::Reference(11), "{itself}");
    }
    assert_eq!(error(r#"{"t":[{}],"r":[{"$":1}]}"#), DecodeError::Reference(15));
    let doubling = |count: usize| {
        let entries: Vec<String> =
            (1..count).map(|i| format!(r#"[{{"$":{}}},{{"$":{0}}}]"#, i - 1)).collect();
        format!(r#"{{"t":[{ADA},{}],"r":{{"$":{}}}}}"#, entries.join(","), count - 1)
    };
    assert_eq!(decode_string(&doubling(10)).len(), 512 * ADA.len() + 511 * 3);
    assert_eq!(error(&doubling(30)), DecodeError::TooLong(CAP));
    assert_eq!(error(&doubling(900)), DecodeError::TooLong(CAP));
    let nesting: Vec<String> = (0..json::DEPTH).map(|i| format!(r#"[{{"$":{i}}}]"#)).collect();
    let deep = format!(r#"{{"t":[[],{}],"r":1}}"#, nesting.join(","));
    assert_eq!(error(&deep).code(), "dedup-too-deep");
    assert_eq!(decode(br#"{"t":[]}"#, 1).unwrap_err(), DecodeError::TooLong(1));
}

/// Returns a tree of a text. Its objects are texts or built, and shared where the text repeats them.
fn build_tree(
    node: json::JsonNode<'_>,
    known: &mut Vec<(Vec<u8>, JsonTree)>,
    built: &mut impl FnMut() -> bool,
) -> JsonTree {
    if let Some((_, tree)) = known.iter().find(|(text, _)| text == node.text()) {
        return tree.clone();
    }
    let json_tree = match node.kind() {
        json::ValueKind::Array if built() => {
            JsonTree::Array(node.items().map(|item| build_tree(item, known, built)).collect())
        }
        json::ValueKind::Object if built() => JsonTree::Object(
            node.members()
                .map(|(name, value)| (name.node().slice(), build_tree(value, known, built)))
                .collect(),
        ),
        _ => JsonTree::Text(node.slice()),
    };
    if built() {
        known.push((node.text().to_vec(), json_tree.clone()));
    }
    json_tree
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_text_is_restored(text in any_text()) {
        for form in [DedupForm::Json, DedupForm::GraphQl] {
            if let Some(wire) = encode_string(&text, form) {
                prop_assert_eq!(decode_string(&wire), strip_spaces(&text));
                prop_assert!(wire.len() * 10 <= strip_spaces(&text).len() * 9);
            }
        }
    }

    #[test]
    fn every_tree_is_restored_and_is_as_short_as_its_text(text in any_text(), coins: u64) {
        let document = JsonDocument::new(Bytes::from(text)).unwrap();
        let mut coins = coins;
        let mut built = || { coins = coins.rotate_left(1); coins & 1 == 1 };
        let tree = build_tree(document.root(), &mut Vec::new(), &mut built);
        let mut plain = Vec::new();
        tree.write(&mut plain);
        let plain = String::from_utf8(plain).unwrap();
        let values = SharedValues::new(&tree, plain.len()).unwrap();
        let searched = encode_flattened(&tree, &values, DedupForm::Json, EqualityCriterion::SameText).map(|wire| tree_text(&wire));
        let text = JsonDocument::from_checked(Bytes::from(strip_spaces(&plain))).unwrap();
        let spelt = encode::encode(&text, &SharedParts::default(), DedupForm::Json, EqualityCriterion::SameText);
        prop_assert_eq!(&searched, &spelt.map(|wire| String::from_utf8(wire).unwrap()));
        if let Some(wire) = searched {
            prop_assert_eq!(decode_string(&wire), strip_spaces(&plain));
        }
        for form in [DedupForm::Json, DedupForm::GraphQl] {
            let written = values.write_encoded(&tree, form, plain.len()).map(|tree| tree_text(&tree));
            let encoded = encode(&tree, form, &ALL_SIZES).map(|tree| tree_text(&tree));
            for wire in [written, encoded].into_iter().flatten() {
                prop_assert_eq!(strip_spaces(&decode_string(&wire)), strip_spaces(&plain));
                prop_assert!(wire.len() * 10 <= plain.len() * 9);
            }
        }
    }
}

#[test]
fn a_long_text_without_early_repetitions_stays_plain() {
    let rows = |range: std::ops::Range<usize>| -> Vec<String> {
        range.map(|id| format!(r#"{{"id":{id},"name":"somebody else, whoever it is"}}"#)).collect()
    };
    let other = rows(0..4000);
    let same = vec![ADA.to_owned(); 4000];
    let late = format!("[{}]", [other.clone(), same.clone()].concat().join(","));
    let soon = format!("[{}]", [same, other].concat().join(","));
    assert_eq!(encode_string(&late, DedupForm::Json), None);
    assert_eq!(decode_string(&encode_string(&soon, DedupForm::Json).unwrap()), soon);
}
