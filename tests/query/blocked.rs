//! Programs that the operator has blocked: none of the ways to name one is left open, from the next reload on.

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::support::{House, Query, problem};

const PROGRAM: &str = "globalThis.runs = 0; export default () => ++globalThis.runs";
const OTHER: &str = "export default () => 'other'";
const ROUTES: &str = "
  - path: /query
    query: { services: [up], modes: [code, instance], stored: [queries/*], limits: { deadline: 30s } }
  - path: /signed
    query: { services: [up], programs: signed, limits: { deadline: 30s } }
";

fn digest(program: &str) -> String {
    Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(program: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(program))
}

/// The config of a running gateway with one more line.
fn reload(house: &House, line: &str) {
    let file = house.gateway.directory().join("orfa.yaml");
    let text = std::fs::read_to_string(file).expect("a config");
    let kept: String =
        text.lines().filter(|line| !line.starts_with("programs:")).map(|line| format!("{line}\n")).collect();
    house.gateway.rewrite("orfa.yaml", &format!("{kept}{line}\n"));
    house.gateway.ask_to_reload();
}

/// Waits until the config that is in force answers a program with this status.
async fn in_force(house: &House, status: u16) {
    let answered = async { while Query::javascript(PROGRAM).send(house).await.status != status {} };
    testkit::patiently("another config in force", answered).await;
}

/// Every way to ask for [`PROGRAM`] that works as long as it is not blocked.
async fn ways(house: &House, signature: &str) -> Vec<(&'static str, Query)> {
    let whole = || Query::javascript(PROGRAM);
    let mut ways = vec![
        ("sent", whole()),
        ("sent by QUERY", whole().method("QUERY")),
        ("sent and kept", whole().header("orfa-cache", "code")),
        ("signed", whole().at("/signed").header("orfa-trust", signature)),
        ("stored", Query::untyped("{}").at("/query/bad")),
        ("stored, in this version", Query::untyped("{}").at(&format!("/query/bad@{}", digest(PROGRAM)))),
        ("stored, by GET", Query::untyped("").method("GET").at("/query/bad")),
    ];
    for mode in ["code", "instance"] {
        let answer = whole().header("orfa-cache", mode).send(house).await;
        let field = answer.header("orfa-cache").to_owned();
        let token = field.split(';').find(|part| part.starts_with("token=")).expect("a token").to_owned();
        let named =
            |by: &str| Query::new("text/javascript", "{}").header("orfa-cache", &format!("{mode};{by}"));
        let _warm = named(&token).send(house).await;
        ways.push(("by token", named(&token)));
        ways.push(("by hash", named(&format!("hash=:{}:", base64(PROGRAM)))));
    }
    let by_hash = Query::new("text/javascript", "{}")
        .at("/signed")
        .header("orfa-trust", signature)
        .header("orfa-cache", &format!("code;hash=:{}:", base64(PROGRAM)));
    ways.push(("signed, by hash", by_hash));
    ways
}

/// A key, as the config has it, and its signature of [`PROGRAM`].
async fn signed() -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.js"), PROGRAM).expect("written");
    let orfa = async |arguments: &[&str]| {
        let output = Command::new(crate::orfa()).args(arguments).current_dir(folder.path()).output().await;
        String::from_utf8(output.expect("orfa runs").stdout).expect("text")
    };
    let trust = orfa(&["keys", "new", "shop"]).await;
    (trust, orfa(&["query", "sign", "a.js", "--key", "shop.pem"]).await.trim().to_owned())
}

#[tokio::test]
async fn a_blocked_program_runs_in_no_way_from_the_next_reload_on() {
    let (trust, signature) = signed().await;
    let files = &[("queries/bad.js", PROGRAM), ("queries/good.js", OTHER)];
    let house = House::own_with(&format!("{ROUTES}{trust}"), files).await;
    let ways = ways(&house, &signature).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&house).await;
        assert!(answer.status.is_success(), "{way}: {}", answer.text());
    }
    reload(&house, &format!("programs: {{ blocked: ['{}'] }}", digest(PROGRAM)));
    in_force(&house, 403).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&house).await;
        assert_eq!(answer.status, 403, "{way}: {}", answer.text());
        let document: Value = problem(&answer, 403, "program-blocked");
        assert_eq!(document["send_program"], Value::Null, "{way}: to send it again is of no use");
    }
    let answer = house.answer(Query::untyped("{}").at("/query/good")).await;
    assert_eq!((&*answer, &*house.answer(Query::javascript(OTHER)).await), ("other", "other"));
    reload(&house, "");
    in_force(&house, 200).await;
    for (way, query) in &ways {
        let answer = query.clone().send(&house).await;
        assert!(answer.status.is_success(), "{way}, open again: {}", answer.text());
    }
}

#[tokio::test]
async fn a_blocked_program_is_not_compiled_where_it_is_stored() {
    let broken = "export default (";
    let routes =
        format!("{ROUTES}programs: {{ blocked: ['{}'] }}\ntrust: {{}}\n", digest(broken).to_uppercase());
    let house = House::own_with(&routes, &[("queries/bad.js", "export default (")]).await;
    problem(&Query::untyped("{}").at("/query/bad").send(&house).await, 403, "program-blocked");
    problem(&Query::javascript(broken).send(&house).await, 403, "program-blocked");
}

#[tokio::test]
async fn what_is_no_hash_is_a_mistake_of_the_config() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("orfa.yaml");
    std::fs::write(&config, "programs: { blocked: [abc] }\nroutes: []\n").expect("written");
    let checked = Command::new(crate::orfa()).arg("check").arg(&config).output().await.expect("orfa runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(64), "{said}");
    assert!(said.contains("programs.blocked[0]") && said.contains("64 hexadecimal digits"), "{said}");
}
