//! The requests of `orfa call`, and its output.

use std::time::Duration;

use http::StatusCode;

use super::problem::PrintedProblem;
use super::*;

const SOURCE: &str = "export default async (input, { profile }) => {\n  const n = ;\n  return n;\n};\n";

fn response(status: u16, content_type: &'static str, body: &str) -> ProgramCallResponse {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    ProgramCallResponse {
        status: StatusCode::from_u16(status).expect("a status"),
        headers,
        body: Bytes::copy_from_slice(body.as_bytes()),
        bytes_sent: 412,
        bytes_received: 1_100,
        duration: Duration::from_micros(12_345),
    }
}

fn program() -> PreparedProgram {
    PreparedProgram { file: "second.ts".into(), bytes: SOURCE.into(), content_type: "text/typescript" }
}

fn render_problem(status: u16, body: &str) -> String {
    let problem = PrintedProblem::from_response(&response(status, "application/problem+json", body))
        .expect("a problem");
    strip_styles(&problem.render(&program(), 80))
}

fn strip_styles(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn shows_the_position_of_source_errors() {
    let text = render_problem(
        422,
        r#"{"title":"The program does not parse","detail":"Unexpected token","code":"program-syntax",
            "line":2,"column":13,"hint":"mind the semicolon"}"#,
    );
    insta::assert_snapshot!(text);
}

#[test]
fn shows_calls_and_output_of_failed_programs() {
    let text = render_problem(
        422,
        r#"{"title":"Too slow","code":"limit-cpu","console":"one\ntwo","calls":[
            {"service":"order","method":"POST","path":"/orders","status":201},
            {"service":"order","method":"POST","path":"/orders","status":"not sent"}]}"#,
    );
    insta::assert_snapshot!(text);
}

#[test]
fn ignores_positions_outside_the_source() {
    for place in [(0, 1), (9, 1), (2, 999)] {
        let text =
            render_problem(422, &format!(r#"{{"title":"T","line":{},"column":{}}}"#, place.0, place.1));
        assert!(text.contains("T (422)"), "{text}");
    }
}

#[test]
fn shows_non_json_problems_unchanged() {
    assert!(render_problem(502, "<html>").contains("<html> (502)"));
}

#[test]
fn program_responses_are_not_problems() {
    assert!(
        PrintedProblem::from_response(&response(404, "application/json", r#"{"title":"mine"}"#)).is_none()
    );
}

#[test]
fn verbose_reports_bytes_times_and_calls() {
    let question = ProgramCallRequest {
        url: DEFAULT_URL.into(),
        program: Bytes::from_static(SOURCE.as_bytes()),
        content_type: "text/typescript",
        input: Some(Bytes::from_static(b"{\"n\":8}")),
        headers: HeaderMap::new(),
    };
    let mut answer = response(200, "application/json", "[]");
    let timing =
        r#"cpu;dur=0.3, call;desc="profile GET /buyers?limit=8 200";dur=3.1;start=0.2, total;dur=9.8"#;
    answer.headers.insert("server-timing", HeaderValue::from_static(timing));
    insta::assert_snapshot!(strip_styles(&format_report(&question, &answer, 80)));
}

#[test]
fn a_header_needs_a_colon_and_a_name() {
    assert!(parse_header("Authorization: Bearer a:b").is_ok_and(|(_, value)| value == "Bearer a:b"));
    for line in ["Authorization", ": x", "a b: c", "a: b\r\nc: d"] {
        assert!(parse_header(line).is_err(), "{line}");
    }
}
