//! Texts that are hard to deduplicate: unusual names and numbers, unpaired surrogates, and occasional white
//! space.

use proptest::prelude::*;

use super::ADA;

/// Returns a strategy for JSON texts with many equal objects.
pub(super) fn any_text() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "$",
        "$$",
        "\\u0024",
        "a",
        "id",
        "__proto__",
        "constructor",
        "t",
        "r",
        "é",
        "\\ud83d",
        "length",
        "0",
    ]);
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just("9007199254740993".to_owned()),
        Just("-0.10e-7".to_owned()),
        Just(r#""\ud800 and \"more\"\u0000 than a few letters""#.to_owned()),
        Just(ADA.to_owned()),
        Just(format!(r#"{{"by":{ADA},"n":1}}"#)),
        Just(format!(r#"{{"by":{ADA},"n":[{{}}]}}"#)),
        Just(r#"{"a":"$","b":1}"#.to_owned()),
        "[0-9]{1,3}".prop_map(|digits| format!("1{digits}")),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let members = prop::collection::vec((names.clone(), inner.clone()), 0..4);
        let space = prop::sample::select(vec!["", "", "", " ", "\n\t"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            (inner, 2..5_usize).prop_map(|(item, times)| format!("[{}]", vec![item; times].join(","))),
            (members, space).prop_map(|(members, space)| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("\"{name}\"{space}:{space}{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}
