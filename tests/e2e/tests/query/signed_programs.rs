//! Signed programs: keys from `orfa keys new`, signatures from `orfa query sign`, checked by the gateway.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::process::Command;

use crate::support::{TestGateway, TestQuery, assert_problem, orfa_binary};

const PROGRAM: &str = "export default (_, services) => Object.keys(services)";
const CALLING_PROGRAM: &str =
    "export default async ({ method }, { up }) => (await up.fetch('/echo', { method })).status";

/// Runs `orfa`, asserts success and returns its output.
async fn run_orfa(folder: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new(orfa_binary()).args(arguments).current_dir(folder).output().await.expect("orfa runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates a folder with the key `shop`, and returns its part of the config.
async fn create_key() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = run_orfa(folder.path(), &["keys", "new", "shop"]).await;
    (folder, printed)
}

/// Returns the `ORFA-Trust` header for a program.
async fn sign_program(folder: &Path, name: &str, program: &str) -> String {
    std::fs::write(folder.join(name), program).expect("written");
    run_orfa(folder, &["query", "sign", name, "--key", "shop.pem"]).await.trim().to_owned()
}

fn signed_routes(trust: &str) -> String {
    format!(
        "
  - path: /query
    query: {{ services: [up, guarded], methods: [GET, POST], modes: [code, instance], limits: {{ timeout: 30s }} }}
  - path: /signed
    query: {{ services: [up, guarded], methods: [GET, POST], programs: signed, limits: {{ timeout: 30s }} }}
callers:
  shop: {{ key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' }}
  other: {{ key: 'sha256:22cfe0361107c0d46ccfbdd706d01fff4127b8fcc0bad4a2d9b9685b81d5f63d' }}
rights: {{ anonymous: {{}}, shop: {{}}, other: {{}} }}
{trust}"
    )
}

#[tokio::test]
async fn routes_for_signed_programs_reject_everything_else() {
    let (folder, trust) = create_key().await;
    let gateway = TestGateway::start(&signed_routes(&trust)).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let send = |program: &str, header: &str| {
        TestQuery::javascript(program).with_path("/signed").header("orfa-trust", header)
    };
    assert_eq!(gateway.expect_text(send(PROGRAM, &signed)).await, r#"["guarded","up"]"#);
    assert_problem(
        &TestQuery::javascript(PROGRAM).with_path("/signed").send(&gateway).await,
        403,
        "program-unsigned",
    );
    assert_problem(
        &send("export default () => 1", &signed).send(&gateway).await,
        403,
        "trust-signature-wrong",
    );
    let typed = TestQuery::typescript(PROGRAM).with_path("/signed").header("orfa-trust", &signed);
    assert_problem(&typed.send(&gateway).await, 403, "trust-signature-wrong");
    let stranger = signed.replace("\"shop\"", "\"nobody\"");
    assert_problem(&send(PROGRAM, &stranger).send(&gateway).await, 403, "trust-key-unknown");
    assert_problem(&send(PROGRAM, &with_high_s(&signed)).send(&gateway).await, 403, "trust-signature-wrong");
    for wrong in [":AA==:;keyid=\"shop\"", &*signed.replace(";keyid=\"shop\"", ""), "abc", ":AA==:, :AA==:"] {
        assert_problem(&send(PROGRAM, wrong).send(&gateway).await, 400, "header-malformed");
    }
    // An invalid signature is an error even where no signature is required.
    let query = TestQuery::javascript("export default () => 1").header("orfa-trust", &signed);
    assert_problem(&query.send(&gateway).await, 403, "trust-signature-wrong");
}

/// Returns the same signature with `s` in the upper half of its range.
fn with_high_s(signed: &str) -> String {
    let order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    let order: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&order[2 * at..2 * at + 2], 16).expect("digits")).collect();
    let end = signed.rfind(':').expect("a byte sequence");
    let mut bytes = STANDARD.decode(&signed[1..end]).expect("base64");
    let mut borrow = 0i16;
    for at in (0..32).rev() {
        let difference = i16::from(order[at]) - i16::from(bytes[32 + at]) - borrow;
        borrow = i16::from(difference < 0);
        bytes[32 + at] = difference.rem_euclid(256) as u8;
    }
    format!(":{}{}", STANDARD.encode(bytes), &signed[end..])
}

#[tokio::test]
async fn callers_with_the_signature_share_the_cached_program() {
    let (folder, trust) = create_key().await;
    let gateway = TestGateway::start(&signed_routes(&trust)).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let by = |query: TestQuery, who: &str| {
        query.header("orfa-trust", &signed).header("x-api-key", &format!("a-long-and-random-key-of-{who}"))
    };
    let hash = STANDARD.encode(Sha256::digest(PROGRAM));
    let test_query = TestQuery::new("text/javascript", "{}")
        .header("orfa-cache", &format!("code;hash=:{hash}:"))
        .with_path("/signed");
    assert_problem(&by(test_query.clone(), "another").send(&gateway).await, 409, "program-unknown");
    let sent = by(TestQuery::javascript(PROGRAM).with_path("/signed"), "the-shop").send(&gateway).await;
    assert_eq!(sent.status, 200);
    let answer = by(test_query.clone(), "another").send(&gateway).await;
    assert_eq!(answer.text(), r#"["guarded","up"]"#, "the other caller's first request, without the program");
    assert!(answer.header("orfa-cache").ends_with(";did=found"));
    assert_problem(&test_query.send(&gateway).await, 403, "program-unsigned");
}

#[tokio::test]
async fn a_client_does_not_evict_instances_of_others_with_the_signature() {
    let (folder, trust) = create_key().await;
    // One client has one of eight warm instances.
    let gateway = TestGateway::start(&signed_routes(&format!("{trust}runtime: {{ instances: 16 }}\n"))).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let query = TestQuery::javascript(PROGRAM).header("orfa-trust", &signed).header("orfa-cache", "instance");
    let first = query.send(&gateway).await;
    let token = first.header("orfa-cache").split(';').find_map(|part| part.strip_prefix("token="));
    let token = token.expect("a token").to_owned();
    for _ in 0..2 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).expect("another address");
        let mut stream = socket.connect(gateway.gateway.address).await.expect("a connection");
        let request = format!(
            "POST /query HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: text/javascript\r\n\
             orfa-trust: {signed}\r\norfa-cache: instance\r\ncontent-length: {}\r\n\r\n{PROGRAM}",
            PROGRAM.len()
        );
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("instance;"), "{answer}");
    }
    let again =
        TestQuery::new("text/javascript", "").header("orfa-cache", &format!("instance;token={token}"));
    let again = again.send(&gateway).await;
    assert!(again.header("orfa-cache").ends_with(";did=reused"), "{}", again.header("orfa-cache"));
}

#[tokio::test]
async fn a_key_grants_only_its_own_rights() {
    let (folder, trust) = create_key().await;
    let rights = "    services: [up]\n    methods: [GET]\n    modes: [code]\n    limits: { calls: 1 }\n";
    let house = TestGateway::start(&signed_routes(&format!("{trust}{rights}"))).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let query = TestQuery::javascript(PROGRAM).header("orfa-trust", &signed).header("orfa-cache", "instance");
    let answer = query.send(&house).await;
    assert!(answer.header("orfa-cache").starts_with("code;"), "{}", answer.header("orfa-cache"));
    assert_eq!(answer.text(), r#"["up"]"#);

    let signed = sign_program(folder.path(), "b.js", CALLING_PROGRAM).await;
    let call = |method: &str| {
        let input = format!(r#"{{"method":"{method}"}}"#);
        TestQuery::javascript(CALLING_PROGRAM).input(&input).header("orfa-trust", &signed)
    };
    assert_eq!(house.expect_text(call("GET")).await, "200");
    assert_problem(&call("POST").send(&house).await, 422, "call-method");

    let twice = "export default async (_, { up }) => { await up.get('/json'); await up.get('/json') }";
    let signed = sign_program(folder.path(), "c.js", twice).await;
    let answer = TestQuery::javascript(twice).header("orfa-trust", &signed).send(&house).await;
    assert_problem(&answer, 422, "limit-calls");
}

#[tokio::test]
async fn an_expired_key_revokes_its_tokens() {
    let (folder, trust) = create_key().await;
    let house = TestGateway::start(&signed_routes(&trust)).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let sent = TestQuery::javascript(PROGRAM)
        .header("orfa-trust", &signed)
        .header("orfa-cache", "code")
        .send(&house)
        .await;
    let token = sent.header("orfa-cache").split(";did").next().expect("a token").to_owned();
    let named = TestQuery::new("text/javascript", "{}").header("orfa-cache", &token);
    assert_eq!(named.clone().send(&house).await.status, 200);
    let config = std::fs::read_to_string(house.gateway.directory().join("orfa.yaml")).expect("the config");

    let over = config.replace("    public_key:", "    expires: 2020-01-01\n    public_key:");
    house.gateway.replace_file("orfa.yaml", &over);
    house.gateway.request_reload();
    house.gateway.wait_for_log(|line| line.contains("is active")).await.expect("a reload");
    assert_problem(&named.clone().send(&house).await, 409, "program-token-revoked");
    let again = TestQuery::javascript(PROGRAM).header("orfa-trust", &signed);
    assert_problem(&again.send(&house).await, 403, "trust-key-expired");
}

#[tokio::test]
async fn invalid_signatures_are_rate_limited_per_caller() {
    let (folder, trust) = create_key().await;
    let house =
        TestGateway::start(&format!("{}runtime: {{ compile_time: 20ms }}\n", signed_routes(&trust))).await;
    let signed = sign_program(folder.path(), "a.js", PROGRAM).await;
    let right = TestQuery::javascript(PROGRAM).header("orfa-trust", &signed);
    let wrong = TestQuery::javascript("export default () => 1").header("orfa-trust", &signed);
    assert_eq!(right.clone().send(&house).await.status, 200);
    let mut checked = 0;
    let refused = loop {
        let answer = wrong.clone().send(&house).await;
        if answer.status == 429 {
            break answer;
        }
        assert_problem(&answer, 403, "trust-signature-wrong");
        checked += 1;
        assert!(checked < 1000, "each check should cost at least 1 ms of 20 ms in ten seconds");
    };
    assert_problem(&refused, 429, "trust-rate");
    assert!(refused.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0));
    assert_problem(&right.clone().send(&house).await, 429, "trust-rate");
    assert_eq!(
        TestQuery::javascript("export default () => 1").send(&house).await.status,
        200,
        "without a signature"
    );
    let other = right.header("x-api-key", "a-long-and-random-key-of-the-shop");
    assert_eq!(other.send(&house).await.status, 200, "another caller has its own budget");
}

#[tokio::test]
async fn keys_are_not_overwritten_and_invalid_ones_are_reported() {
    let (folder, _) = create_key().await;
    let again =
        Command::new(orfa_binary()).args(["keys", "new", "shop"]).current_dir(folder.path()).output().await;
    let again = again.expect("orfa runs");
    assert_eq!(again.status.code(), Some(1), "{}", String::from_utf8_lossy(&again.stderr));

    let text = "services: { up: { url: http://127.0.0.1:1 } }\nroutes: [{ path: /query, query: { services: [up] } }]\n\
                trust: { a: { public_key: AAAA }, b: { public_key: AAAA, expires: tomorrow } }\n";
    std::fs::write(folder.path().join("orfa.yaml"), text).expect("written");
    let mut check = Command::new(orfa_binary());
    let checked = check.args(["check"]).current_dir(folder.path()).output().await;
    let checked = checked.expect("orfa runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(64), "{said}");
    assert_eq!(said.matches("not a public key on P-256").count(), 2, "{said}");
    assert!(said.contains("`tomorrow` is not a date"), "{said}");
}
