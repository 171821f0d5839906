//! Fuzz tests of declarations, placeholders and upstream responses. See `fuzz/src/lib.rs`.

use std::collections::BTreeMap;

use ::fuzz::ByteChoices;
use ::fuzz::generate::json as generate;
use handler::HandlerRequest;
use http::Request;
use http_body_util::BodyExt;
use services::{BytesConfig, RequestCall, body};

use crate::plan::template::{BodyTemplate, TemplatePiece, TemplateScope, UrlTemplate};
use crate::tests::fixture::{
    AggregateFixture, AggregateTestService, TestServiceResponse, test_services, unlimited_pool,
};
use crate::{Aggregate, AggregateContext, AggregateDeclaration, AggregateLimitsConfig};

const NAMES: TemplateScope<'_> = TemplateScope { inputs: &["limit"], parts: &["a", "b"] };
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
fn template_pieces_reproduce_the_text() {
    ::fuzz::check(PLACEHOLDERS, |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let _ =
            (UrlTemplate::parse(&text, NAMES), BodyTemplate::parse(&serde_json::Value::from(&*text), NAMES));
        let Ok(pieces) = NAMES.parse_template(&text) else { return };
        let written = pieces.iter().map(|piece| match piece {
            TemplatePiece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
            TemplatePiece::Slot(slot) => format!("{{{}}}", slot.text),
        });
        assert_eq!(written.collect::<String>(), text);
    });
}

#[test]
fn rejects_or_explains_any_declaration() {
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
    let service = AggregateTestService::default();
    let services = test_services(&service.into());
    ::fuzz::check(words, |text: &[u8]| {
        let text = format!(r#"{{"parts":{{"a":{{"get":"profile/a"}},{}}}}}"#, String::from_utf8_lossy(text));
        let Ok(declaration) = serde_json::from_str::<AggregateDeclaration>(&text) else { return };
        let context = AggregateContext {
            path: "/here",
            services: &services,
            documents: &BTreeMap::new(),
            offload: &unlimited_pool(),
        };
        if let Ok(aggregate) = Aggregate::new(&declaration, &AggregateLimitsConfig::default(), &context) {
            assert_eq!(aggregate.explain().steps.len(), declaration.parts.len());
        }
    });
}

#[test]
fn upstream_values_never_change_the_declared_call_target() {
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
            let fixture = AggregateFixture::new(declared, &[("profile/a", 200, &answer), ("*", 200, "[1]")]);
            let _ = runtime.block_on(fixture.send(Request::get("/here").body("").unwrap()));
            for line in fixture.call_lines().iter().filter(|line| *line != "GET profile/a") {
                let (path, query) = line.split_once('?').expect("a query");
                let segments: Vec<&str> = path.split('/').collect();
                let [_, _, value, end] = segments[..] else { panic!("{line}") };
                assert!(!matches!(value, "" | "." | "..") && end == "x", "{line}");
                assert!(query.starts_with("y=") && !query.contains(['&', '#']), "{line}");
            }
        }
    });
}

/// Aggregates of every kind, with joins, `each`, fields, merges, batches and optional parts.
const DECLARATIONS: &[&str] = &[
    r#"{"parts":{"a":{"get":"profile/a"},
        "b":{"get":"order/b?ids={$.a[*].id}","batch":3,"join":{"into":"a","on":"id = id","one":"first"}}}}"#,
    r#"{"parts":{"a":{"get":"profile/a","at":"/items","fields":["id","a"]},
        "b":{"get":"order/b/{each.id}","each":"a","optional":true},
        "c":{"get":"catalog/c?x={$.a[0].id}","optional":true,"default":[]}}}"#,
    r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/b"}},"response":{"merge":["a","b"],"conflict":"last"}}"#,
    r#"{"parts":{"a":{"get":"profile/a"},
        "b":{"get":"order/b","join":{"into":"$.a.items","on":"ids[*] = id","as":"rows","text":true}},
        "c":{"get":"catalog/c","join":{"into":"b","on":"id = a","missing":"error"},"optional":true}}}"#,
    r#"{"parts":{"a":{"get":"profile/a","optional":true},
        "b":{"post":"order/b","body":{"all":"{$.a[*].id}","one":"{$.a[0]}","text":"x{$.a[0].id}y"},"headers":{"x-y":"{$.a[0].id}"},"optional":true}},
        "partial":203}"#,
    r#"{"parts":{"a":{"get":"profile/a"},
        "b":{"get":"order/b/{each.id}","each":"$.a.items","apart":true,"fields":{"town":".a.id","x":".id"}}},"response":"b"}"#,
    r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/b"},"c":{"get":"catalog/c"}},"response":["c","a"]}"#,
];
/// The members that the declarations refer to.
const MEMBERS: generate::KnownMemberNames<'static> =
    generate::KnownMemberNames(&["id", "a", "items", "ids", "b", "rows"]);

/// Generates a response for each call.
fn generate_responses(choices: &mut ByteChoices<'_>) -> BTreeMap<String, TestServiceResponse> {
    let lines = ["GET profile/a", "GET order/b", "GET catalog/c", "POST order/b", "GET order/b/7", "GET *"];
    let answer = |choices: &mut ByteChoices<'_>| {
        let status = choices.pick(&[200, 200, 200, 200, 200, 204, 206, 304, 404, 500]);
        TestServiceResponse::Text(status, generate::text(choices, MEMBERS))
    };
    lines.into_iter().map(|line| (line.to_owned(), answer(choices))).collect()
}

#[test]
fn any_upstream_responses_give_a_bounded_response_or_a_problem() {
    let limits = AggregateLimitsConfig {
        calls: 100,
        fan_out: 50,
        upstream_bytes: BytesConfig::mib(4),
        response_body: BytesConfig::mib(1),
        memory: BytesConfig::mib(4),
        ..AggregateLimitsConfig::default()
    };
    let rigs: Vec<AggregateFixture> = DECLARATIONS
        .iter()
        .map(|declared| AggregateFixture::with_limits("/here", declared, limits, &[]))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    ::fuzz::run("aggregate_answers", &[], |bytes| {
        let mut choices = ByteChoices::new(bytes);
        let fixture = &rigs[choices.number_below(rigs.len())];
        let mut answers = generate_responses(&mut choices);
        // `*` does not provide responses for POST.
        answers.entry("POST *".to_owned()).or_insert(TestServiceResponse::Text(200, "1".to_owned()));
        *fixture.test_service.answers.lock().unwrap() = answers;
        let [one, other] = [(); 2].map(|()| runtime.block_on(fetch_response(fixture)));
        assert_eq!(one, other, "equal upstream responses must give equal responses");
        fixture.test_service.recorded_calls.lock().unwrap().clear();
    });
}

/// Returns the status and text of a response. The text is `None` if the response was aborted.
async fn fetch_response(fixture: &AggregateFixture) -> (u16, Option<String>) {
    let request = Request::get("/here").body(body::empty()).unwrap();
    let response = match fixture
        .aggregate
        .handle(HandlerRequest::new(request, RequestCall::unlimited()))
        .await
    {
        Ok(answer) => answer.response,
        Err(problem) => {
            assert!(!problem.code().is_empty() && !problem.to_string().is_empty());
            assert!(problem.status().is_client_error() || problem.status().is_server_error(), "{problem}");
            return (problem.status().as_u16(), Some(problem.code().to_owned()));
        }
    };
    let (head, body) = response.into_parts();
    // A streamed response can only be aborted.
    let Ok(body) = body.collect().await else { return (head.status.as_u16(), None) };
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("the response is UTF-8");
    assert!(text.len() <= 1 << 20, "{} bytes", text.len());
    // Upstream responses at the maximum depth exceed it when nested in the response.
    match json::JsonDocument::new(text.clone().into()) {
        Ok(_) | Err(json::JsonError::TooDeep(_)) => {}
        Err(error) => panic!("{error}: {text}"),
    }
    (head.status.as_u16(), Some(text))
}
