//! What a pointer finds, by example and for any document.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn at(text: &str, path: &str) -> Option<String> {
    let found = pointer(text.as_bytes(), path).unwrap();
    found.map(|slice| String::from_utf8(slice.to_vec()).unwrap())
}

#[test]
fn it_finds_members_and_items_as_they_were_spelt() {
    let text = r#" { "a" : [ 1, 2.50e1 , {"b~/c": "x"} ], "\u0064": null } "#;
    assert_eq!(at(text, "/a/1").unwrap(), "2.50e1");
    assert_eq!(at(text, "/a/2/b~0~1c").unwrap(), r#""x""#);
    assert_eq!(at(text, "/d").unwrap(), "null");
    assert_eq!(at(text, "").unwrap(), text.trim());
}

#[test]
fn what_is_not_there_is_none() {
    for path in ["/b", "/a/3", "/a/01", "/a/-", "/a/0/x"] {
        assert_eq!(at(r#"{"a":[1,2,3]}"#, path), None, "{path}");
    }
}

#[test]
fn broken_text_and_broken_pointers_are_errors() {
    assert_eq!(pointer(b"[1,", "/1"), Err(Error::NotJson(3)));
    assert_eq!(pointer(b"[1 2]", "/1"), Err(Error::NotJson(3)));
    assert_eq!(pointer(b"", ""), Err(Error::NotJson(0)));
    assert_eq!(pointer(b"{}", "a"), Err(Error::NotPointer));
    assert_eq!(pointer(b"{}", "/~2"), Err(Error::NotPointer));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn escape(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn check(text: &str, value: &Value, path: &str) {
    let found: Value = serde_json::from_str(&at(text, path).unwrap()).unwrap();
    assert_eq!(&found, value, "{path}");
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| check(text, item, &format!("{path}/{index}")));
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, item)| check(text, item, &format!("{path}/{}", escape(name))));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_value_is_found_by_its_pointer(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        prop_assert!(valid(text.as_bytes()));
        // Read back first: serde_json's own reading of floats is off by a bit now and then.
        let value: Value = serde_json::from_str(&text).unwrap();
        check(&text, &value, "");
    }

    #[test]
    fn valid_says_what_serde_json_says(text in r#"[\[\]{},:"\\u0-9eE+.truefalsn -]{0,24}"#) {
        let known: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
        prop_assert_eq!(valid(text.as_bytes()), known.is_ok(), "{}", text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, path in "(/[a-z0-9~]{0,3}){0,4}") {
        let _ = pointer(&bytes, &path);
        let _ = valid(&bytes);
    }
}
