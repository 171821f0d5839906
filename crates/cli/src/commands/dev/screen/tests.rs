//! The output of `orfa dev` for a request, as text.

use http::{Method, StatusCode};
use services::RequestReport;

use super::*;

fn upstream_call(path: &str, outcome: UpstreamCallOutcome, span: (u64, Option<u64>)) -> UpstreamCallRecord {
    let time = Duration::from_millis;
    let span = (time(span.0), span.1.map(time));
    UpstreamCallRecord {
        service: "profile".into(),
        method: Method::GET,
        path: path.into(),
        address: None,
        outcome,
        retry_times: Vec::new(),
        span,
    }
}

fn displayed_request(
    status: u16,
    code: Option<&'static str>,
    report: Option<RequestReport>,
) -> DisplayedRequest {
    let request = CompletedRequest {
        method: Method::POST,
        path: "/query".into(),
        status: StatusCode::from_u16(status).expect("a status"),
        code,
        duration: Duration::from_millis(12),
        upstream_calls: vec![],
        report,
        phases: gateway::PhaseSequence::default(),
    };
    DisplayedRequest { request, cpu_limit: Some(Duration::from_millis(50)) }
}

fn strip_styles(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn draws_a_request_with_its_calls() {
    let calls = vec![
        upstream_call("/buyers?limit=8", UpstreamCallOutcome::Status(200), (0, Some(3))),
        upstream_call("/admins", UpstreamCallOutcome::NoAnswer, (3, None)),
    ];
    let report = RequestReport { call_records: calls, started: None, cpu: Duration::from_micros(310) };
    let expected = "
POST /query 200  12.0 ms  cpu 0.31 ms of 50.0 ms  2 calls
  profile GET /buyers?limit=8  200        |=====                |    3.0 ms
  profile GET /admins          no answer  |     ................|
";
    assert_eq!(
        strip_styles(&draw_request(&displayed_request(200, None, Some(report)), 75)),
        expected.trim_start_matches('\n')
    );
}

#[test]
fn draws_a_refused_request_as_a_line_with_its_code() {
    let text = strip_styles(&draw_request(&displayed_request(415, Some("content-type-unknown"), None), 80));
    assert_eq!(text, "POST /query 415  content-type-unknown  12.0 ms  0 calls\n");
}

#[test]
fn greeting_shows_how_to_call() {
    let text = strip_styles(&greeting(
        "http://localhost:9000/query",
        &["profile", "order"],
        &["orfa.yaml".into()],
        None,
    ));
    let expected = r#"
POST http://localhost:9000/query  programs may call: profile, order
try      orfa call query.ts --input '{"n":8}' --url http://localhost:9000/query
or       curl -F program=@query.ts -F input='{"n":8}' http://localhost:9000/query
watched  orfa.yaml
"#;
    assert_eq!(text, expected.trim_start_matches('\n'));
    assert!(!strip_styles(&greeting(DEFAULT_URL, &[], &[], None)).contains("--url"));
}
