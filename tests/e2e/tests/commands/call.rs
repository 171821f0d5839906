//! `orfa call`: its requests and its output. A service that echoes or misbehaves takes the place of the
//! gateway.

use serde_json::Value;
use testkit::misbehaving_upstream;

use super::{create_folder, lossy_text, run_orfa};

#[tokio::test]
async fn sends_the_input_before_the_program() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("q.ts", "export default () => 1;")]);
    let url = upstream.url() + "/echo";
    let arguments =
        ["call", "q.ts", "--input", r#"{"n":8}"#, "--url", &url, "-H", "x-a: b", "--limit", "cpu=5"];
    let output = run_orfa(folder.path(), &arguments).await;
    let sent: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(sent["method"], "POST");
    assert_eq!(sent["body"], r#"{"n":8}export default () => 1;"#);
    let header = |name: &str| sent["headers"][name].clone();
    assert_eq!(header("content-type"), "text/typescript");
    assert_eq!(header("orfa-input"), "7");
    assert_eq!((header("x-a"), header("orfa-limit")), ("b".into(), "cpu=5".into()));
    assert_eq!(header("prefer"), Value::Null);
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn sends_no_input_header_without_input() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("q.mjs", "1")]);
    let output =
        run_orfa(folder.path(), &["call", "q.mjs", "-v", "--url", &(upstream.url() + "/echo")]).await;
    let sent: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&sent["headers"]["orfa-input"], &sent["body"]), (&Value::Null, &"1".into()));
    assert_eq!(sent["headers"]["prefer"], "calls");
    assert!(lossy_text(&output.stderr).contains("(input 0 B, program 1 B), received "));
}

#[tokio::test]
async fn prints_answers_with_an_error_status_and_fails() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("q.js", "1")]);
    let output = run_orfa(folder.path(), &["call", "q.js", "--url", &(upstream.url() + "/status/418")]).await;
    assert!(!output.stdout.is_empty());
    assert!(lossy_text(&output.stderr).contains("the response has status 418"));
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn reports_incomplete_responses() {
    let upstream = misbehaving_upstream::start().await;
    let folder = create_folder(&[("q.js", "1")]);
    for path in ["/short", "/reset", "/garbage", "/chunked-broken"] {
        let output = run_orfa(folder.path(), &["call", "q.js", "--url", &(upstream.url() + path)]).await;
        let told = lossy_text(&output.stderr);
        assert!(told.contains("gave no complete response") && told.contains("(no-answer)"), "{path}: {told}");
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(output.stdout.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn explains_an_unreachable_gateway() {
    let folder = create_folder(&[("q.ts", "export default () => 1;")]);
    let output = run_orfa(folder.path(), &["call", "q.ts", "--url", "http://127.0.0.1:1/query"]).await;
    let told = lossy_text(&output.stderr);
    assert!(told.contains("(no-gateway)"), "{told}");
    assert!(told.contains("is `orfa dev` or `orfa serve` running there?"), "{told}");
    assert_eq!(output.status.code(), Some(1));
}
