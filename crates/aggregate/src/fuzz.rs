//! Declarations, placeholders, and what services answer to them, from anywhere: see `fuzz/src/lib.rs`.

use std::collections::BTreeMap;

use http::Request;

use crate::template::{BodyTemplate, Names, Piece, Url};
use crate::tests::rig::{Rig, Stage, pool, services};
use crate::{Aggregate, Declaration, Ground, LimitsConfig};

const NAMES: Names<'_> = Names { inputs: &["limit"], parts: &["a", "b"] };
const PLACEHOLDERS: &[&str] = &[
    "{limit}",
    "{$.a[*].id}",
    "{$.b/x/*/y*}",
    "{each",
    "{body.",
    "{{",
    "}}",
    "{",
    "}",
    "[\"",
    "\"]",
    "[*]",
    "[0]",
    ".id",
    "/",
    "~1",
    "?x=",
    "&",
    "*",
    "\u{e9}",
];

#[test]
fn a_text_is_all_of_its_pieces_or_no_template() {
    ::fuzz::check(PLACEHOLDERS, |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let _ = (Url::parse(&text, NAMES), BodyTemplate::parse(&serde_json::Value::from(&*text), NAMES));
        let Ok(pieces) = NAMES.template(&text) else { return };
        let written = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
            Piece::Slot(slot) => format!("{{{}}}", slot.text),
        });
        assert_eq!(written.collect::<String>(), text);
    });
}

#[test]
fn any_declaration_is_refused_or_can_be_explained() {
    let words = &[
        "\"a\":{\"get\":\"profile/a",
        "\"b\":{\"get\":\"order/b?x=",
        "{$.a[*].id}",
        "{$.b.id}",
        "{each.x}",
        "\"",
        ",",
        "}",
        ",\"each\":\"a\"",
        ",\"join\":{\"into\":\"a\",\"on\":\"x=y\"",
        ",\"as\":\"",
        ",\"fields\":[\"x\"]",
        ",\"optional\":true",
        ",\"at\":\"/x\"",
        ",\"apart\":true",
    ];
    let stage = Stage::default();
    let services = services(&stage.into());
    ::fuzz::check(words, |text: &[u8]| {
        let text = format!(r#"{{"parts":{{"a":{{"get":"profile/a"}},{}}}}}"#, String::from_utf8_lossy(text));
        let Ok(declared) = serde_json::from_str::<Declaration>(&text) else { return };
        let ground =
            Ground { path: "/here", services: &services, documents: &BTreeMap::new(), offload: &pool() };
        if let Ok(aggregate) = Aggregate::new(&declared, &LimitsConfig::default(), &ground) {
            assert_eq!(aggregate.explain().steps.len(), declared.parts.len());
        }
    });
}

#[test]
fn whatever_a_service_answers_no_call_leaves_the_place_that_is_declared() {
    let declared = r#"{"parts":{"a":{"get":"profile/a"},
        "one":{"get":"order/one/{$.a[0]}/x?y={$.a[0]}","headers":{"x-y":"{$.a[0]}"},"optional":true},
        "all":{"get":"order/all/{$.a[*]}/x?y=1","batch":2,"optional":true},
        "each":{"get":"order/each/{each}/x?y={each}","each":"a","apart":true,"optional":true}}}"#;
    let words = &[
        "\"",
        ",",
        "[",
        "]",
        "..",
        ".",
        "/",
        "\\\\",
        "\\u002f",
        "\\ud800",
        "\\ud83d\\ude00",
        "\\r\\n",
        "%2e",
        "%",
        "?",
        "#",
        "&",
        "null",
        "1e5",
        "{}",
        "\u{e9}",
        "\",\"",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    ::fuzz::check(words, |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        for answer in [format!("[{text}]"), format!("[\"{text}\"]")] {
            let rig = Rig::new(declared, &[("profile/a", 200, &answer), ("*", 200, "[1]")]);
            let _ = runtime.block_on(rig.send(Request::get("/here").body("").unwrap()));
            for line in rig.lines().iter().filter(|line| *line != "GET profile/a") {
                let (path, query) = line.split_once('?').expect("a query");
                let segments: Vec<&str> = path.split('/').collect();
                let [_, _, value, end] = segments[..] else { panic!("{line}") };
                assert!(!matches!(value, "" | "." | "..") && end == "x", "{line}");
                assert!(query.starts_with("y=") && !query.contains(['&', '#']), "{line}");
            }
        }
    });
}
