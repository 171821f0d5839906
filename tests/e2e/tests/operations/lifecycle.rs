//! Reloads, shutdown and binary takeover, from the point of view of clients.

use testkit::GatewayProcess;
use testkit::http::{self, TestResponse};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};

use crate::support::{ClientLoad, UnsentTestRequest, orfa_binary};

/// Returns a config that puts its number into every answer twice: the upstream request's header and the
/// gateway's own CORS header.
fn config(upstream: &MisbehavingUpstream, number: usize, more: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
log: {{ access: false }}
drain: {{ delay: 1s }}
shed: {{ automatic: false }}
services:
  up: {{ url: '{}', headers: {{ x-config: 'v{number}' }} }}
cors: {{ origins: ['https://shop.example.org'], expose: ['v{number}'] }}
routes:
  - {{ path: '/up/*', proxy: up }}
  - {{ path: /query, query: {{ services: [up], limits: {{ timeout: 30s }} }} }}
{more}",
        upstream.url()
    )
}

const PROGRAM: &str = "export default async (_, { up }) => (await up.get('/echo')).headers['x-config']";

/// Returns a proxied request and a query in turn.
fn build_request(turn: usize) -> UnsentTestRequest {
    let origin = ("origin", "https://shop.example.org");
    match turn % 2 {
        0 => UnsentTestRequest { method: "GET", path: "/up/echo", headers: vec![origin], body: "" },
        _ => {
            let typed = ("content-type", "text/javascript");
            UnsentTestRequest { method: "POST", path: "/query", headers: vec![origin, typed], body: PROGRAM }
        }
    }
}

/// Returns the config numbers in an answer: the one from the upstream request and the one from the gateway's
/// own header.
fn config_numbers(answer: &TestResponse) -> (String, String) {
    let text = answer.text();
    let echo: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let seen = echo.and_then(|echo| echo["headers"]["x-config"].as_str().map(str::to_owned)).unwrap_or(text);
    let exposed = answer.header("access-control-expose-headers").to_ascii_lowercase();
    let said = exposed.split(", ").find(|name| name.starts_with('v')).unwrap_or_default().to_owned();
    (seen, said)
}

fn check_response(answer: &TestResponse) -> Result<(), String> {
    if answer.status != 200 {
        return Err(format!("{}: {}", answer.status, answer.text()));
    }
    match config_numbers(answer) {
        (seen, said) if seen == said && !seen.is_empty() => Ok(()),
        mixed => Err(format!("a mixed answer: {mixed:?}")),
    }
}

/// Returns the number of the config that serves a new request.
async fn active_config(gateway: &GatewayProcess) -> String {
    let origin = [("origin", "https://shop.example.org")];
    let answer = http::request("GET", &format!("{}/up/echo", gateway.url), &origin, "").await;
    config_numbers(&answer.expect("an answer")).0
}

/// Waits until the config with this number is in force.
async fn wait_until_active(gateway: &GatewayProcess, number: usize) {
    let wanted = format!("v{number}");
    let turned = async { while active_config(gateway).await != wanted {} };
    testkit::with_timeout(format!("config {wanted} in force"), turned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reloads_under_load_fail_no_requests_and_mix_no_configs() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, "")).await;
    let load = ClientLoad::start(&gateway.url, build_request, check_response);
    for number in 1..=100 {
        gateway.replace_file("orfa.yaml", &config(&upstream, number, ""));
        gateway.request_reload();
        wait_until_active(&gateway, number).await;
    }
    load.wait_for_responses(100).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{} failures, the first: {:?}", failures.len(), failures.first());
}

#[tokio::test]
async fn reloads_when_the_config_or_a_file_it_references_changes() {
    let upstream = misbehaving_upstream::start().await;
    let named = config(&upstream, 0, "").replace("'v0' } }", "'${file:number}' } }");
    let gateway = GatewayProcess::start_with(orfa_binary(), &named, &[("number", "v0")]).await;
    assert_eq!(active_config(&gateway).await, "v0");
    gateway.replace_file("number", "v7");
    wait_until_active(&gateway, 7).await;
    gateway.replace_file("orfa.yaml", &config(&upstream, 8, ""));
    wait_until_active(&gateway, 8).await;
}

#[tokio::test]
async fn rejects_an_invalid_config_with_all_mistakes_and_keeps_the_previous_one() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, "")).await;
    gateway.replace_file("orfa.yaml", "listen: nowhere\nroutes: [{ path: x }]\n");
    gateway.request_reload();
    gateway.wait_for_log(|line| line.contains("stays active")).await.expect("a log line about it");
    let log = gateway.log_lines();
    for mistake in ["`nowhere` is not an address", "`x` does not start with `/`", "has no handler"] {
        assert!(log.iter().any(|line| line.contains(mistake)), "{mistake} in {log:?}");
    }
    assert_eq!(active_config(&gateway).await, "v0");
    gateway.replace_file("orfa.yaml", &config(&upstream, 1, ""));
    wait_until_active(&gateway, 1).await;
}

#[tokio::test]
async fn logs_settings_that_need_a_restart() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, "")).await;
    gateway
        .replace_file("orfa.yaml", &config(&upstream, 1, "admin: 127.0.0.1:0\nruntime: { instances: 7 }\n"));
    gateway.request_reload();
    wait_until_active(&gateway, 1).await;
    for field in ["admin", "runtime"] {
        let line = |line: &str| line.contains("after a restart") && line.contains(&format!("\"{field}\""));
        gateway.wait_for_log(line).await.unwrap_or_else(|| panic!("{field} in {:?}", gateway.log_lines()));
    }
}

#[tokio::test]
async fn sigterm_waits_for_load_balancers_and_drops_no_requests() {
    let upstream = misbehaving_upstream::start().await;
    let mut gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, "")).await;
    let load = ClientLoad::start(&gateway.url, build_request, check_response);
    load.wait_for_responses(20).await;
    gateway.request_shutdown();
    gateway.wait_for_log(|line| line.contains("leaving")).await.expect("the end begins");
    // Clients that a load balancer still sends here.
    load.wait_for_responses(20).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{} failures, the first: {:?}", failures.len(), failures.first());
    assert!(gateway.wait_for_exit().await.success());
}

#[tokio::test]
async fn a_second_signal_stops_the_gateway_immediately() {
    let upstream = misbehaving_upstream::start().await;
    let long = config(&upstream, 0, "").replace("delay: 1s", "delay: 1h, timeout: 1h");
    let mut gateway = GatewayProcess::start(orfa_binary(), &long).await;
    let url = format!("{}/up/hang", gateway.url);
    let hanging = tokio::spawn(async move { http::request("GET", &url, &[], "").await.is_err() });
    upstream.wait_for_request("/hang").await;
    gateway.request_shutdown();
    gateway.wait_for_log(|line| line.contains("leaving")).await.expect("the end begins");
    gateway.interrupt();
    assert!(gateway.wait_for_exit().await.success());
    assert!(hanging.await.expect("a task"), "an answer of a gateway that has ended");
}

const TAKEOVER: &str = "takeover: takeover.sock\nadmin: 127.0.0.1:0\n";

async fn can_be_taken_over(gateway: &GatewayProcess) {
    gateway.wait_for_log(|line| line.contains("can be taken over")).await.expect("a takeover socket");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_takeovers_under_load_refuse_and_fail_no_requests() {
    let upstream = misbehaving_upstream::start().await;
    let mut gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, TAKEOVER)).await;
    can_be_taken_over(&gateway).await;
    let load = ClientLoad::start(&gateway.url, build_request, check_response);
    for change in 0..10 {
        let next = gateway.start_successor(orfa_binary()).await;
        assert_eq!(next.address, gateway.address, "change {change}");
        can_be_taken_over(&next).await;
        assert!(gateway.wait_for_exit().await.success(), "change {change}: {:?}", gateway.log_lines());
        gateway = next;
        load.wait_for_responses(20).await;
    }
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{} failures, the first: {:?}", failures.len(), failures.first());
}

#[tokio::test]
async fn a_successor_that_exits_before_it_is_ready_changes_nothing() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = GatewayProcess::start(orfa_binary(), &config(&upstream, 0, TAKEOVER)).await;
    can_be_taken_over(&gateway).await;
    let socket = gateway.directory().join("takeover.sock");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600, "other users must not be able to connect");
    drop(tokio::net::UnixStream::connect(&socket).await.expect("a connection"));
    gateway
        .wait_for_log(|line| line.contains("this process continues to serve"))
        .await
        .expect("a log line about it");
    assert_eq!(active_config(&gateway).await, "v0");
    let next = gateway.start_successor(orfa_binary()).await;
    assert_eq!(next.address, gateway.address);
}

#[tokio::test]
async fn a_successor_binds_new_addresses_and_releases_removed_ones() {
    let upstream = misbehaving_upstream::start().await;
    let both =
        config(&upstream, 0, TAKEOVER).replace("listen: 127.0.0.1:0", "listen: [127.0.0.1:0, 127.0.0.2:0]");
    let mut gateway = GatewayProcess::start(orfa_binary(), &both).await;
    can_be_taken_over(&gateway).await;
    let line = gateway.wait_for_log(|line| line.contains("127.0.0.2:")).await.expect("a second address");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let gone = format!("http://{}", line["address"].as_str().expect("an address"));
    let other = both.replace("127.0.0.2:0", "127.0.0.3:0");
    gateway.replace_file("orfa.yaml", &other);
    let next = gateway.start_successor(orfa_binary()).await;
    can_be_taken_over(&next).await;
    assert_eq!(next.address, gateway.address);
    next.wait_for_log(|line| line.contains("127.0.0.3:")).await.expect("a new address");
    assert!(gateway.wait_for_exit().await.success());
    assert!(http::request("GET", &gone, &[], "").await.is_err(), "{gone} is still listened on");
    assert_eq!(active_config(&next).await, "v0");
}

#[tokio::test]
async fn a_takeover_with_overlapping_addresses_fails_with_a_hint() {
    let upstream = misbehaving_upstream::start().await;
    let all = config(&upstream, 0, TAKEOVER).replace("listen: 127.0.0.1:0", "listen: 0.0.0.0:0");
    let gateway = GatewayProcess::start(orfa_binary(), &all).await;
    can_be_taken_over(&gateway).await;
    let port = gateway.address.port();
    gateway
        .replace_file("orfa.yaml", &all.replace("listen: 0.0.0.0:0", &format!("listen: 127.0.0.1:{port}")));
    let next = tokio::process::Command::new(orfa_binary())
        .args(["serve", "--config"])
        .arg(gateway.directory().join("orfa.yaml"))
        .output();
    let next = next.await.expect("an end");
    let said = String::from_utf8_lossy(&next.stderr);
    assert_eq!(next.status.code(), Some(70), "{}: {said}", next.status);
    for words in
        [&*format!("can't listen on 127.0.0.1:{port}"), &format!("0.0.0.0:{port}"), "systemctl restart"]
    {
        assert!(said.contains(words), "{words} in {said}");
    }
    gateway
        .wait_for_log(|line| line.contains("this process continues to serve"))
        .await
        .expect("a log line about it");
    assert_eq!(active_config(&gateway).await, "v0");
    gateway.replace_file("orfa.yaml", &all.replace("listen: 0.0.0.0:0", &format!("listen: 0.0.0.0:{port}")));
    let next = gateway.start_successor(orfa_binary()).await;
    assert_eq!(next.address, gateway.address, "the same address, written differently");
}

/// Asserts that the gateway answers a query.
async fn assert_answers_query(gateway: &GatewayProcess) {
    let typed = [("content-type", "text/javascript")];
    let answer = http::request("POST", &format!("{}/query", gateway.url), &typed, PROGRAM).await;
    assert_eq!(answer.expect("an answer").text(), "v0");
}

#[tokio::test]
async fn shrinks_instance_pools_when_address_space_is_limited() {
    let upstream = misbehaving_upstream::start().await;
    let mut limited = tokio::process::Command::new("sh");
    limited.args(["-c", "ulimit -v 33554432; exec \"$0\" \"$@\""]).arg(orfa_binary());
    let gateway = GatewayProcess::start_with_command(limited, &config(&upstream, 0, "")).await;
    let line = gateway.wait_for_log(|line| line.contains("refuses address space")).await.expect("a warning");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert!(line["instances"].as_u64().is_some_and(|instances| (1..256).contains(&instances)), "{line}");
    assert_answers_query(&gateway).await;
}

#[tokio::test]
async fn runs_as_an_unprivileged_user_and_writes_no_files() {
    const NOBODY: u32 = 65534;
    let upstream = misbehaving_upstream::start().await;
    let mut command = tokio::process::Command::new(orfa_binary());
    // A working directory that is not writable, and no `HOME`.
    command.current_dir("/proc").env_clear();
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let gateway = GatewayProcess::start_with_command(command, &config(&upstream, 0, "")).await;
    assert_answers_query(&gateway).await;
    let files = std::fs::read_dir(gateway.directory()).expect("a folder").count();
    assert_eq!(files, 1, "a file other than the config");
}
