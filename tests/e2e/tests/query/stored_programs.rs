//! Stored programs: configured by the operator, called by name and version.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{TestGateway, TestQuery, assert_problem, orfa_binary};

const ROUTES: &str = "
  - path: /query
    query: { services: [up], methods: [GET, POST], stored: [./queries/*, ./queries/old/*], limits: { timeout: 30s } }
  - path: /only
    query: { services: [up], programs: stored, stored: [queries/echo.js], limits: { timeout: 30s } }
";
const ECHO_PROGRAM: &str = "export default (input) => input";
const OLD_PROGRAM: &str = "export default () => 'as it was'";
const FILES: &[(&str, &str)] = &[
    ("queries/echo.js", ECHO_PROGRAM),
    ("queries/typed.ts", "export default ({ n }: { n: number }) => n + 1"),
    ("queries/write.js", "export default async (_, { up }) => (await up.post('/echo', 1)).method"),
    ("queries/notes.md", "no program"),
    ("queries/old/echo.js", OLD_PROGRAM),
];

fn program_version(program: &str) -> String {
    Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn get_query(path: &str) -> TestQuery {
    TestQuery::untyped("").method("GET").with_path(path)
}

#[tokio::test]
async fn a_stored_program_is_called_by_its_name() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    let post = |path: &str, input: &str| TestQuery::untyped(input).with_path(path);
    assert_eq!(gateway.expect_text(post("/query/echo", r#"{"a":[1]}"#)).await, r#"{"a":[1]}"#);
    assert_eq!(gateway.expect_text(post("/query/typed", r#"{"n":1}"#)).await, "2");
    assert_eq!(gateway.expect_text(post("/query/echo", "7").method("QUERY")).await, "7");
    let answer = get_query("/query/echo?n=8&name=a%20b&n=9&empty=").send(&gateway).await;
    assert_eq!(answer.json(), json!({ "n": ["8", "9"], "name": "a b", "empty": "" }));
    let head = get_query("/query/echo").method("HEAD").send(&gateway).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn input_where_it_is_not_read_is_refused() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    for query in [
        TestQuery::untyped("").with_path("/query/echo?n=8"),
        TestQuery::untyped("{}").with_path("/query/echo?n=8").method("QUERY"),
        TestQuery::untyped("{}").with_path("/query/echo").method("GET"),
        TestQuery::untyped("{}").with_path("/query/echo").header("orfa-input", "2"),
        get_query("/query/echo?n=8").header("orfa-input", "0"),
        TestQuery::javascript(ECHO_PROGRAM).with_path("/query?n=8"),
    ] {
        assert_problem(&query.send(&gateway).await, 400, "input-misplaced");
    }
    assert_eq!(gateway.expect_text(TestQuery::untyped("7").with_path("/query/echo?")).await, "7");
}

#[tokio::test]
async fn versions_are_available_while_a_listed_file_has_them() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    for (program, answer) in [(ECHO_PROGRAM, "{}"), (OLD_PROGRAM, "as it was")] {
        let hash = program_version(program);
        assert_eq!(gateway.expect_text(get_query(&format!("/query/echo@{hash}"))).await, answer);
        assert_eq!(gateway.expect_text(get_query(&format!("/query/echo@{}", &hash[..16]))).await, answer);
    }
    for name in [
        "gone",
        "echo@",
        "echo@0123456789abcdef",
        &format!("echo@{}", &program_version(ECHO_PROGRAM)[..15]),
        "notes",
        "echo.js",
    ] {
        assert_problem(&get_query(&format!("/query/{name}")).send(&gateway).await, 404, "stored-unknown");
    }
}

#[tokio::test]
async fn safe_methods_allow_only_safe_calls() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    assert_eq!(gateway.expect_text(TestQuery::untyped("").with_path("/query/write")).await, "POST");
    assert_problem(&get_query("/query/write").send(&gateway).await, 422, "call-method");
    assert_problem(
        &TestQuery::untyped("").with_path("/query/write").method("QUERY").send(&gateway).await,
        422,
        "call-method",
    );
    let answer = TestQuery::untyped("").with_path("/query/write").method("PUT").send(&gateway).await;
    assert_problem(&answer, 405, "method-not-allowed");
    assert_eq!(answer.header("allow"), "GET, HEAD, POST, QUERY");
}

#[tokio::test]
async fn cross_site_embedding_runs_no_program() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    for site in ["cross-site", "same-site"] {
        let answer = get_query("/query/echo").header("sec-fetch-site", site).send(&gateway).await;
        assert_problem(&answer, 403, "origin-forbidden");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(gateway.expect_text(get_query("/query/echo").header("sec-fetch-site", site)).await, "{}");
    }
}

#[tokio::test]
async fn routes_for_stored_programs_reject_other_programs() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    assert_eq!(gateway.expect_text(get_query("/only/echo")).await, "{}");
    assert_problem(
        &TestQuery::javascript(ECHO_PROGRAM).with_path("/only").send(&gateway).await,
        403,
        "program-not-stored",
    );
}

#[tokio::test]
async fn a_reload_with_an_invalid_program_keeps_the_previous_ones() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    gateway.gateway.replace_file("queries/typed.ts", "export default ({ n }: { n: number }) => n +");
    gateway.gateway.request_reload();
    let line = gateway.gateway.wait_for_log(|line| line.contains("typed.ts")).await.expect("a line");
    assert!(line.contains("line 1, column"), "{line}");
    assert_eq!(gateway.expect_text(TestQuery::untyped(r#"{"n":1}"#).with_path("/query/typed")).await, "2");
}

#[tokio::test]
async fn a_reload_adds_programs_of_new_files() {
    let gateway = TestGateway::start_with_files(ROUTES, FILES).await;
    gateway.gateway.replace_file("queries/late.js", "export default () => 'late'");
    gateway.gateway.request_reload();
    gateway.gateway.wait_for_log(|line| line.contains("is active")).await.expect("a reload");
    assert_eq!(gateway.expect_text(get_query("/query/late")).await, "late");
}

#[tokio::test]
async fn check_rejects_a_pattern_without_matching_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("orfa.yaml");
    let text = "services: { up: { url: http://127.0.0.1:1 } }\nroutes:\n  - path: /query\n    query: { services: [up], stored: [nowhere/*] }\n";
    std::fs::write(&config, text).expect("written");
    let checked = tokio::process::Command::new(orfa_binary()).arg("check").arg(&config).output();
    let checked = checked.await.expect("orfa runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(64), "{said}");
    assert!(said.contains("no file matches `nowhere/*`"), "{said}");
}
