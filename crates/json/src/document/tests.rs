//! Tests of documents, with examples and with generated documents.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::DEPTH;

fn parse_document(text: &str) -> Result<JsonDocument, JsonError> {
    JsonDocument::new(Bytes::copy_from_slice(text.as_bytes()))
}

fn text_at_pointer(text: &str, path: &str) -> Option<String> {
    let document = parse_document(text).unwrap();
    let json_node = document.root().pointer(path).unwrap();
    json_node.map(|node| String::from_utf8(node.slice().to_vec()).unwrap())
}

#[test]
fn pointers_find_members_and_items_with_their_original_text() {
    let text = r#" { "a" : [ 1, 2.50e1 , {"b~/c": "x"} ], "\u0064": null } "#;
    assert_eq!(text_at_pointer(text, "/a/1").unwrap(), "2.50e1");
    assert_eq!(text_at_pointer(text, "/a/2/b~0~1c").unwrap(), r#""x""#);
    assert_eq!(text_at_pointer(text, "/d").unwrap(), "null");
    assert_eq!(text_at_pointer(text, "").unwrap(), text.trim());
}

#[test]
fn pointers_to_missing_values_find_nothing() {
    for path in ["/b", "/a/3", "/a/01", "/a/-", "/a/0/x"] {
        assert_eq!(text_at_pointer(r#"{"a":[1,2,3]}"#, path), None, "{path}");
    }
}

#[test]
fn pointers_take_the_first_of_duplicate_names() {
    let document = parse_document(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
    let root = document.root();
    assert_eq!(root.member(b"a").unwrap().text(), b"1");
    assert_eq!(root.last_member(b"a").unwrap().text(), b"3");
    let names = root.members().filter_map(|(key, _)| key.node().string());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "a"].map(str::as_bytes));
}

#[test]
fn reports_positions_of_syntax_errors() {
    let error = |text: &str| parse_document(text).map(|_| ()).unwrap_err();
    assert_eq!(error("[1,"), JsonError::NotJson(3));
    assert_eq!(error("[1 2]"), JsonError::NotJson(3));
    assert_eq!(error(""), JsonError::NotJson(0));
    assert_eq!(error(r#"{"a":1}}"#), JsonError::NotJson(7));
    assert_eq!(error(r#"["a\x"]"#), JsonError::NotJson(3));
    assert_eq!(error("[\"a\tb\"]"), JsonError::NotJson(3));
    assert_eq!(error(&format!("[{}01]", " ".repeat(100))), JsonError::NotJson(101));
    assert_eq!(JsonDocument::new(Bytes::from_static(b"[\"\xff\"]")).unwrap_err(), JsonError::NotJson(2));
    let document = parse_document("{}").unwrap();
    assert_eq!(document.root().pointer("a").unwrap_err(), JsonError::NotPointer);
    assert_eq!(document.root().pointer("/~2").unwrap_err(), JsonError::NotPointer);
}

#[test]
fn rejects_deep_nesting_and_mismatched_brackets() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse_document(&nested(DEPTH)).is_ok());
    assert_eq!(parse_document(&nested(DEPTH + 1)).unwrap_err(), JsonError::TooDeep(DEPTH));
    assert!(parse_document(r#"[{"a":[1}]]"#).is_err());
}

#[test]
fn detects_whitespace_outside_of_strings() {
    let long = "x y ".repeat(40);
    for text in [r#"{"a b":[1,"c\t\" d"]}"#.to_owned(), format!(r#"["{long}",1]"#), format!("[\"{long}\"]")] {
        assert!(!parse_document(&text).unwrap().has_whitespace(), "{text}");
        for place in text.char_indices().filter(|(_, char)| "[]{},:".contains(*char)).map(|(place, _)| place)
        {
            let spaced = format!("{}\n{}", &text[..place], &text[place..]);
            assert!(parse_document(&spaced).unwrap().has_whitespace(), "{spaced}");
        }
        assert!(parse_document(&format!("{text} ")).unwrap().has_whitespace());
    }
}

#[test]
fn lists_tokens_in_order_without_validation_too() {
    let text = r#"{"a":[1,true],"b c":"\"d\""}"#;
    let tokens = |document: &JsonDocument| document.tokens().collect::<Vec<_>>();
    let known = JsonDocument::from_checked(Bytes::from_static(text.as_bytes())).unwrap();
    let places = [0, 1, 4, 5, 6, 7, 8, 12, 13, 14, 19, 20, 27];
    assert_eq!(tokens(&known), places.map(|at| (text.as_bytes()[at], at)));
    assert_eq!(tokens(&known), tokens(&parse_document(text).unwrap()));
    assert!(JsonDocument::from_checked(Bytes::from_static(b"[\"")).is_err());
}

#[test]
fn removes_a_byte_order_mark() {
    assert_eq!(parse_document("\u{feff}[1]").unwrap().root().text(), b"[1]");
}

#[test]
fn resolves_escapes_in_strings() {
    let document = parse_document(r#"["\ud83d\ude00\n\"\/","plain","\ud800x","\ud800\u0041"]"#).unwrap();
    let strings: Vec<_> = document.root().items().filter_map(JsonNode::string).collect();
    assert_eq!(strings, ["😀\n\"/", "plain", "\u{fffd}x", "\u{fffd}A"].map(str::as_bytes));
    assert_eq!(
        document.root().items().map(JsonNode::has_unpaired_surrogate).collect::<Vec<_>>(),
        [false, false, true, true]
    );
}

#[test]
fn detects_duplicate_names_and_unpaired_surrogates() {
    let found = |text: &str| {
        let ambiguity = parse_document(text).unwrap().root().check_unambiguous().err()?;
        Some((ambiguity.path(), ambiguity.requirement()))
    };
    for text in [r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}],"A":"\ud83d\ude00"}"#, "[]", "1", r#""\u0061""#]
    {
        assert_eq!(found(text), None, "{text}");
    }
    for (text, path, must) in [
        (r#"{"a":1,"a":1}"#, "", "have each name once, and not `a` twice"),
        (r#"[0,{"x":{"acc":1,"b":{},"\u0061cc":2}}]"#, "[1].x", "have each name once, and not `acc` twice"),
        (r#"{"":1,"":2}"#, "", "have each name once, and not `` twice"),
        (r#"{"s":["x\ud800"]}"#, ".s[0]", "have no half of a surrogate pair"),
        (r#"{"a":{"\udc00":1}}"#, ".a", "have no half of a surrogate pair"),
    ] {
        assert_eq!(found(text), Some((path.to_owned(), must.to_owned())), "{text}");
    }
    let deep = format!("{}{}{}", r#"{"name":"#.repeat(1000), r#"{"a":1,"a":2}"#, "}".repeat(1000));
    let (path, _) = found(&deep).expect("an ambiguity");
    assert!(path.len() < 100 && path.ends_with("..."), "{path}");
}

#[test]
fn passed_members_have_positions_and_short_numbers_are_detected() {
    let name = KeyPattern::new(b"\"n\":");
    let found = |value: &str| {
        let document = parse_document(&format!(r#"{{"n":{value},"m":0}}"#)).unwrap();
        let mut members = document.root().members();
        assert!(members.next_matches(&name));
        let member = members.next_matching(&name).unwrap();
        assert_eq!(member.node().text(), value.as_bytes());
        assert_eq!((member.start, member.value, member.end), (1, 5, 5 + value.len()));
        assert_eq!(member.first_byte(), value.as_bytes()[0]);
        assert!(!members.next_matches(&name) && members.next_matching(&name).is_none());
        member.is_short_integer()
    };
    assert!(["0", "7", "12345678"].into_iter().all(found));
    assert!(!["123456789", "-1", "1.5", "2e3", "0.0", "\"1\"", "[1]", "{\"n\":[2]}"].into_iter().any(found));
}

#[test]
fn classifies_numbers_including_those_beyond_64_bits() {
    let document = parse_document("[7,-7,18446744073709551615,18446744073709551616,1e400,-0,2.5]").unwrap();
    let numbers: Vec<_> = document.root().items().filter_map(JsonNode::number).collect();
    use JsonNumber::{Big, Negative, Real, Unsigned};
    assert_eq!(numbers, [Unsigned(7), Negative(-7), Unsigned(u64::MAX), Big, Big, Real(-0.0), Real(2.5)]);
}

#[test]
fn finds_a_value_by_its_position() {
    let text = format!(r#"{{"long":{:?},"list":[[],{{"x":[1,2,3]}},"s"]}}"#, "y".repeat(200));
    let document = parse_document(&text).unwrap();
    let node = document.root().pointer("/list/1").unwrap().unwrap();
    let json_node = document.node_at(node.start()).unwrap();
    assert_eq!(json_node.text(), node.text());
    assert_eq!(json_node.member(b"x").unwrap().count(), 3);
    assert_eq!(document.root().count(), 2);
}

#[test]
fn finds_values_only_at_token_positions() {
    let text = r#"{"a{[": [1, "[2"], "b": 34}"#;
    let document = parse_document(text).unwrap();
    let places: Vec<_> = (0..text.len() + 70).filter(|place| document.node_at(*place).is_some()).collect();
    let tokens: Vec<_> = document.tokens().map(|(_, place)| place).collect();
    assert_eq!(places, tokens);
}

#[test]
fn iteration_resumes_at_a_spot() {
    let text = format!(r#"{{"one":1, "list":[{}[1,{{"x":2}}]], "":"s","last":{{}} }}"#, "[0],".repeat(100));
    let document = parse_document(&text).unwrap();
    let all: Vec<_> = document.root().members().map(|(key, value)| (key.node(), value)).collect();
    for (number, (name, _)) in all.iter().enumerate() {
        let rest: Vec<_> =
            document.members_at(name.node_id()).map(|(key, value)| (key.node(), value)).collect();
        assert_eq!(rest.len(), all.len() - number);
        for ((name, value), (other, same)) in rest.iter().zip(&all[number..]) {
            assert_eq!((name.text(), value.text()), (other.text(), same.text()));
        }
    }
}

#[test]
fn compares_lengths_without_reading_the_value() {
    let text =
        format!(r#"{{"s":"{}" ,"n":12  , "list":[{}0],"short":[1]}}"#, "x".repeat(500), "1,".repeat(300));
    let document = parse_document(&text).unwrap();
    let at = |name: &[u8]| document.root().member(name).unwrap();
    for (name, length) in [(&b"s"[..], 503), (b"n", 4), (b"list", 603)] {
        assert!(at(name).is_longer_than(length - 1) && !at(name).is_longer_than(length), "{length}");
        assert_eq!(at(name).slice_with_whitespace().trim_ascii_end(), at(name).text());
    }
    assert!(!at(b"short").is_longer_than(0), "it is not in the index");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        r#"[\\"a]{0,80}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn assert_node_matches(node: JsonNode<'_>, value: &Value) {
    let text: Value = serde_json::from_slice(node.text()).unwrap();
    assert_eq!(&text, value);
    match value {
        Value::Array(items) => {
            assert_eq!(node.count(), items.len());
            assert_eq!(node.items().count(), items.len());
            node.items().zip(items).for_each(|(node, item)| assert_node_matches(node, item));
            for (place, item) in node.items().enumerate() {
                assert!(
                    item.with_following_items()
                        .map(JsonNode::start)
                        .eq(node.items().skip(place).map(JsonNode::start))
                );
            }
        }
        Value::Object(members) => {
            assert_eq!(node.count(), members.len());
            for ((key, node), (name, value)) in node.members().zip(members) {
                assert_eq!(*key.node().string().unwrap(), *name.as_bytes());
                assert_node_matches(node, value);
            }
            members.keys().for_each(|name| {
                assert!(node.member(name.as_bytes()).is_some() && node.last_member(name.as_bytes()).is_some())
            });
        }
        Value::String(string) => assert_eq!(*node.string().unwrap(), *string.as_bytes()),
        Value::Number(number) => match node.number().unwrap() {
            JsonNumber::Unsigned(found) => assert_eq!(Some(found), number.as_u64()),
            JsonNumber::Negative(found) => assert_eq!(Some(found), number.as_i64()),
            // serde_json's own parsing of floats may be off by one bit.
            JsonNumber::Real(found) => {
                let known: f64 = number.as_f64().unwrap();
                assert!((found - known).abs() <= known.abs() * 1e-15, "{number}");
            }
            JsonNumber::Big => panic!("{number} is not big"),
        },
        Value::Bool(known) => assert_eq!(node.kind(), ValueKind::Bool(*known)),
        Value::Null => assert_eq!(node.kind(), ValueKind::Null),
    }
}

proptest! {
    #[test]
    fn every_value_agrees_with_serde_json(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        // Parsed again first, since serde_json's own parsing of floats may be off by one bit.
        let value: Value = serde_json::from_str(&text).unwrap();
        let document = parse_document(&text).unwrap();
        assert_node_matches(document.root(), &value);
    }

    #[test]
    fn finds_names_with_any_escapes(name in ".{0,6}", other in ".{0,6}", cut in 0..6_usize) {
        let escaped: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let half: String = name.chars().take(cut).collect();
        for text in [json!({ &name: 1 }).to_string(), format!("{{\"{escaped}\" : 1}}")] {
            let document = parse_document(&text).unwrap();
            prop_assert!(document.root().member(name.as_bytes()).is_some());
            for other in [&other, &half, &format!("{name}a")] {
                prop_assert_eq!(document.root().member(other.as_bytes()).is_some(), *other == name);
            }
        }
    }

    #[test]
    fn accepts_the_same_single_byte_changes_as_serde_json(
        value in any_json(), place: prop::sample::Index, byte: u8,
    ) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let place = place.index(text.len());
        text[place] = byte;
        let known: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&text);
        let known = known.is_ok() && std::str::from_utf8(&text).is_ok();
        prop_assert_eq!(JsonDocument::new(Bytes::from(text)).is_ok(), known);
    }

    #[test]
    fn accepts_the_same_token_sequences_as_serde_json(text in r#"[\[\]{},:"\\u0-9eE+.truefalsn -]{0,24}"#) {
        let known: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
        prop_assert_eq!(parse_document(&text).is_ok(), known.is_ok(), "{}", text);
    }
}

#[test]
fn passed_items_have_end_positions() {
    for text in [r#"[1,[1,{"c":2}],"x",null,{}]"#, "[ 1 ,\n[ 1 ] , \"x\" ]", "[]"] {
        let document = parse_document(text).unwrap();
        let mut items = document.root().items();
        let mut count = 0;
        while let Some(item) = items.next_with_positions() {
            assert_eq!(&text.as_bytes()[item.value..item.end], item.node().text());
            count += 1;
        }
        assert_eq!(count, document.root().count());
    }
}

#[test]
fn consumes_only_a_member_with_the_expected_spelling() {
    let document = JsonDocument::new(Bytes::from_static(br#"{"a":1,"b" : [2,{}],"\u0063":"x"}"#)).unwrap();
    let mut members = document.root().members();
    let [a, b, c] = [b"\"a\":", b"\"b\":", b"\"c\":"].map(|text| KeyPattern::new(text));
    assert!(members.next_matching(&b).is_none());
    let member = members.next_matching(&a).unwrap();
    let (start, value, end) = (member.start, member.node(), member.end);
    assert_eq!((start, value.text(), end), (1, &b"1"[..], 6));
    assert!(members.next_matching(&b).is_none(), "the colon is at another position");
    assert_eq!(members.next().unwrap().1.text(), b"[2,{}]");
    assert!(members.next_matching(&c).is_none());
    assert_eq!(members.next().unwrap().1.text(), b"\"x\"");
    assert!(members.next_matching(&a).is_none() && members.next().is_none());
}

#[test]
fn compares_long_expected_names() {
    let document =
        parse_document(r#"{"a_name_of_many_letters":1,"a_name_of_many_letterz":2,"z":3}"#).unwrap();
    let mut members = document.root().members();
    let spelling = |name: &str| KeyPattern::new(format!("\"{name}\":").as_bytes());
    assert!(members.next_matching(&spelling("a_name_of_many_letterz")).is_none());
    assert_eq!(members.next_matching(&spelling("a_name_of_many_letters")).unwrap().node().text(), b"1");
    assert_eq!(members.next_matching(&spelling("a_name_of_many_letterz")).unwrap().node().text(), b"2");
    assert!(members.next_matching(&spelling("z_and_more_than_is_left_of_the_text")).is_none());
    assert_eq!(members.next_matching(&spelling("z")).unwrap().node().text(), b"3");
}

#[test]
fn finds_values_by_position_in_any_order() {
    let item = |number: usize| {
        format!(r#"{{"number":{number},"text":"{}","list":[{{}},{number}]}}"#, "x".repeat(number % 90))
    };
    let text = format!("[{}]", (0..500).map(item).collect::<Vec<_>>().join(","));
    let document = JsonDocument::new(text.into()).unwrap();
    let items: Vec<JsonNode<'_>> = document.root().items().collect();
    for number in (0..500).map(|number| number * 211 % 500) {
        let by_start = document.node_at(items[number].start()).unwrap();
        let by_spot = document.node_by_id(items[number].node_id()).unwrap();
        for node in [by_start, by_spot] {
            assert_eq!(node.text(), item(number).as_bytes());
            assert_eq!(node.member(b"list").unwrap().count(), 2);
        }
    }
}

/// A text whose index is larger than the text: deeply nested arrays, each just long enough to be in the
/// index.
fn deeply_nested(texts: usize) -> String {
    let one = format!("{}\"{}\"{}", "[".repeat(1000), "x".repeat(64), "]".repeat(1000));
    format!("[{}]", vec![one; texts].join(","))
}

#[test]
fn the_index_stays_within_its_memory_limit() {
    let deep = deeply_nested(50);
    assert!(parse_document(&deep).unwrap().index_bytes() > 4 * deep.len());
    for text in
        [deep, format!("[{}]", vec![format!("[\"{}\"]", "x".repeat(70)); 2000].join(",")), "[1]".to_owned()]
    {
        let needed = parse_document(&text).unwrap().index_bytes();
        let within = |most| JsonDocument::with_memory_limit(text.clone().into(), most);
        // During growth, the previous allocation counts, too.
        assert_eq!(within(2 * needed).unwrap().root().text(), text.as_bytes());
        for most in [0, 1, needed / 8, needed / 2] {
            match within(most) {
                Ok(document) => assert!(document.index_bytes() <= most, "{most}"),
                Err(error) => assert!(matches!(error, JsonError::IndexTooLarge(_)), "{error}"),
            }
        }
        assert!(matches!(within(needed / 8), Err(JsonError::IndexTooLarge(_))));
    }
}
