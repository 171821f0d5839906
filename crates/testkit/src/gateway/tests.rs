//! Tests with a shell script in place of the gateway.

use super::{GatewayProcess, parse_listening_address};
use std::os::unix::fs::PermissionsExt;

/// A script that is started with `serve --config FILE`.
fn write_script(text: &str) -> tempfile::TempPath {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn finds_the_address_in_flat_and_nested_lines() {
    let expected = "127.0.0.1:80".parse().ok();
    assert_eq!(parse_listening_address(r#"{"message":"listening","address":"127.0.0.1:80"}"#), expected);
    assert_eq!(
        parse_listening_address(r#"{"fields":{"message":"listening","address":"127.0.0.1:80"}}"#),
        expected
    );
    assert_eq!(parse_listening_address(r#"{"message":"bye","address":"127.0.0.1:80"}"#), None);
    assert_eq!(parse_listening_address("not JSON"), None);
}

#[tokio::test]
async fn a_gateway_starts_logs_and_ends() {
    let binary = write_script(
        r#"echo hello >&2
echo '{"message":"listening","address":"127.0.0.1:4"}' >&2
trap 'echo drained >&2; exit 3' TERM
cat "$3" >&2
while :; do sleep 0.01; done"#,
    );
    let mut gateway = GatewayProcess::start(&binary, "listen: 127.0.0.1:0\n").await;
    assert_eq!(gateway.url, "http://127.0.0.1:4");
    let config = gateway.wait_for_log(|line| line.starts_with("listen:")).await;
    assert_eq!(config.as_deref(), Some("listen: 127.0.0.1:0"));
    assert_eq!(gateway.terminate().await.code(), Some(3));
    assert!(gateway.wait_for_log(|line| line == "drained").await.is_some());
}

#[tokio::test]
#[should_panic(expected = "no services")]
async fn panics_with_the_log_of_a_gateway_that_exits() {
    let binary = write_script("echo no services >&2; exit 64");
    GatewayProcess::start(&binary, "").await;
}
