//! Programs that the operator has blocked: from the next reload on, no form of request can run them.

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::support::{TestGateway, TestQuery, assert_problem, orfa_binary};

const PROGRAM: &str = "globalThis.runs = 0; export default () => ++globalThis.runs";
const OTHER_PROGRAM: &str = "export default () => 'other'";
const ROUTES: &str = "
  - path: /query
    query: { services: [up], modes: [code, instance], stored: [queries/*], limits: { timeout: 30s } }
  - path: /signed
    query: { services: [up], programs: signed, limits: { timeout: 30s } }
";

fn hex_digest(program: &str) -> String {
    Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64_digest(program: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(program))
}

/// Reloads the gateway with one more line in its config.
fn reload(gateway: &TestGateway, line: &str) {
    let file = gateway.gateway.directory().join("orfa.yaml");
    let text = std::fs::read_to_string(file).expect("a config");
    let kept: String =
        text.lines().filter(|line| !line.starts_with("programs:")).map(|line| format!("{line}\n")).collect();
    gateway.gateway.replace_file("orfa.yaml", &format!("{kept}{line}\n"));
    gateway.gateway.request_reload();
}

/// Waits until the active config answers the program with this status.
async fn wait_for_status(gateway: &TestGateway, status: u16) {
    let answered = async { while TestQuery::javascript(PROGRAM).send(gateway).await.status != status {} };
    testkit::with_timeout("another config in force", answered).await;
}

/// Returns a query for each form of request that runs [`PROGRAM`] while it is not blocked.
async fn request_forms(gateway: &TestGateway, signature: &str) -> Vec<(&'static str, TestQuery)> {
    let whole = || TestQuery::javascript(PROGRAM);
    let mut ways = vec![
        ("sent", whole()),
        ("sent by QUERY", whole().method("QUERY")),
        ("sent and kept", whole().header("orfa-cache", "code")),
        ("signed", whole().with_path("/signed").header("orfa-trust", signature)),
        ("stored", TestQuery::untyped("{}").with_path("/query/bad")),
        (
            "stored, in this version",
            TestQuery::untyped("{}").with_path(&format!("/query/bad@{}", hex_digest(PROGRAM))),
        ),
        ("stored, by GET", TestQuery::untyped("").method("GET").with_path("/query/bad")),
    ];
    for mode in ["code", "instance"] {
        let answer = whole().header("orfa-cache", mode).send(gateway).await;
        let field = answer.header("orfa-cache").to_owned();
        let token = field.split(';').find(|part| part.starts_with("token=")).expect("a token").to_owned();
        let named =
            |by: &str| TestQuery::new("text/javascript", "{}").header("orfa-cache", &format!("{mode};{by}"));
        let _warm = named(&token).send(gateway).await;
        ways.push(("by token", named(&token)));
        ways.push(("by hash", named(&format!("hash=:{}:", base64_digest(PROGRAM)))));
    }
    let by_hash = TestQuery::new("text/javascript", "{}")
        .with_path("/signed")
        .header("orfa-trust", signature)
        .header("orfa-cache", &format!("code;hash=:{}:", base64_digest(PROGRAM)));
    ways.push(("signed, by hash", by_hash));
    ways
}

/// Returns the config of a new signing key, and its signature of [`PROGRAM`].
async fn sign_program() -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.js"), PROGRAM).expect("written");
    let orfa = async |arguments: &[&str]| {
        let output = Command::new(orfa_binary()).args(arguments).current_dir(folder.path()).output().await;
        String::from_utf8(output.expect("orfa runs").stdout).expect("text")
    };
    let trust = orfa(&["keys", "new", "shop"]).await;
    (trust, orfa(&["query", "sign", "a.js", "--key", "shop.pem"]).await.trim().to_owned())
}

#[tokio::test]
async fn no_form_of_request_runs_a_blocked_program_after_a_reload() {
    let (trust, signature) = sign_program().await;
    let files = &[("queries/bad.js", PROGRAM), ("queries/good.js", OTHER_PROGRAM)];
    let gateway = TestGateway::start_with_files(&format!("{ROUTES}{trust}"), files).await;
    let ways = request_forms(&gateway, &signature).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&gateway).await;
        assert!(answer.status.is_success(), "{way}: {}", answer.text());
    }
    reload(&gateway, &format!("programs: {{ blocked: ['{}'] }}", hex_digest(PROGRAM)));
    wait_for_status(&gateway, 403).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&gateway).await;
        assert_eq!(answer.status, 403, "{way}: {}", answer.text());
        let document: Value = assert_problem(&answer, 403, "program-blocked");
        assert_eq!(document["send_program"], Value::Null, "{way}: sending it again must not be suggested");
    }
    let answer = gateway.expect_text(TestQuery::untyped("{}").with_path("/query/good")).await;
    assert_eq!(
        (&*answer, &*gateway.expect_text(TestQuery::javascript(OTHER_PROGRAM)).await),
        ("other", "other")
    );
    reload(&gateway, "");
    wait_for_status(&gateway, 200).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&gateway).await;
        assert!(answer.status.is_success(), "{way}, open again: {}", answer.text());
    }
}

#[tokio::test]
async fn a_blocked_stored_program_is_not_compiled() {
    let broken = "export default (";
    let routes =
        format!("{ROUTES}programs: {{ blocked: ['{}'] }}\ntrust: {{}}\n", hex_digest(broken).to_uppercase());
    let gateway = TestGateway::start_with_files(&routes, &[("queries/bad.js", "export default (")]).await;
    assert_problem(
        &TestQuery::untyped("{}").with_path("/query/bad").send(&gateway).await,
        403,
        "program-blocked",
    );
    assert_problem(&TestQuery::javascript(broken).send(&gateway).await, 403, "program-blocked");
}

#[tokio::test]
async fn check_rejects_a_malformed_hash_of_a_blocked_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("orfa.yaml");
    std::fs::write(&config, "programs: { blocked: [abc] }\nroutes: []\n").expect("written");
    let checked = Command::new(orfa_binary()).arg("check").arg(&config).output().await.expect("orfa runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(64), "{said}");
    assert!(said.contains("programs.blocked[0]") && said.contains("64 hexadecimal digits"), "{said}");
}
