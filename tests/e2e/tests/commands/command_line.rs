//! The command line in general: mistakes in it and in the config, help, and the exit codes.

use std::path::Path;

use super::{create_folder, lossy_text, run_orfa};
use crate::support::orfa_binary;

const VALID_CONFIG: &str = "
listen: 127.0.0.1:0
services:
  profile: { url: 'http://127.0.0.1:1' }
routes:
  - { path: /query, query: { services: [profile] } }
  - { path: /profile/*, proxy: profile }
";

const INVALID_CONFIG: &str = "
listen: 127.0.0.1:0
services:
  profile: { url: 'http://127.0.0.1:1', timeuot: 2s }
routes:
  - path: /query
    query: { services: [profle], limits: { cpu: fast } }
";

#[tokio::test]
async fn check_accepts_a_valid_config() {
    let folder = create_folder(&[("orfa.yaml", VALID_CONFIG)]);
    let output = run_orfa(folder.path(), &["check"]).await;
    assert_eq!(lossy_text(&output.stdout), "ok: 1 service, 2 routes\n", "{}", lossy_text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn check_reports_every_mistake_with_its_location() {
    let folder = create_folder(&[("bad.yaml", INVALID_CONFIG)]);
    let output = run_orfa(folder.path(), &["check", "bad.yaml"]).await;
    let told = lossy_text(&output.stderr);
    for place in ["bad.yaml:4:", "services.profile.timeuot", "bad.yaml:7:", "routes[0].query.limits.cpu"] {
        assert!(told.contains(place), "no {place} in\n{told}");
    }
    assert!(told.ends_with("\nthe config has 3 errors\n"), "{told}");
    assert_eq!(output.status.code(), Some(64));
    assert!(output.stdout.is_empty());
}

#[tokio::test]
async fn serve_rejects_an_invalid_config_before_listening() {
    let folder = create_folder(&[("orfa.yaml", INVALID_CONFIG)]);
    let output = run_orfa(folder.path(), &["serve"]).await;
    assert_eq!(output.status.code(), Some(64));
    assert!(!lossy_text(&output.stderr).contains("listening"));
}

#[tokio::test]
async fn reports_a_missing_config_file() {
    let folder = create_folder(&[]);
    for verb in [
        &["check", "no.yaml"][..],
        &["serve", "--config", "no.yaml"],
        &["serve", "-c", "no.yaml"],
        &["dev", "--config", "no.yaml"],
        &["dev", "-c", "no.yaml"],
    ] {
        let output = run_orfa(folder.path(), verb).await;
        assert_eq!(output.status.code(), Some(64), "{verb:?}");
        assert!(lossy_text(&output.stderr).contains("no.yaml: cannot be read"), "{verb:?}");
    }
}

#[tokio::test]
async fn config_schema_prints_json() {
    let output = run_orfa(Path::new("."), &["config", "schema"]).await;
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema.pointer("/properties/routes").is_some());
}

#[tokio::test]
async fn a_wrong_command_line_exits_with_64() {
    let folder = create_folder(&[("q.ts", "")]);
    let wrong: [&[&str]; 7] = [
        &[],
        &["sreve"],
        &["serve", "--confg", "x"],
        &["dev", "nonsense"],
        &["call", "missing.ts"],
        &["call", "q.ts", "--url", "ftp://x"],
        &["call", "q.ts", "-H", "nonsense"],
    ];
    for arguments in wrong {
        let output = run_orfa(folder.path(), arguments).await;
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", lossy_text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn help_and_version_exit_successfully() {
    for argument in ["--help", "--version"] {
        let output = run_orfa(Path::new("."), &[argument]).await;
        assert_eq!(output.status.code(), Some(0));
        assert!(lossy_text(&output.stdout).contains("orfa"));
    }
}

#[tokio::test]
async fn serve_logs_json_and_exits_cleanly_on_sigterm() {
    let config = "listen: 127.0.0.1:0\nroutes: []\ndrain: { delay: 0s }\n";
    let mut gateway = testkit::GatewayProcess::start(orfa_binary(), config).await;
    let answer = testkit::http::request("GET", &format!("{}/nowhere", gateway.url), &[], "").await;
    assert_eq!(answer.expect("an answer").status, 404);
    assert!(gateway.terminate().await.success());
    gateway.wait_for_log(|line| line.contains("stopped")).await.expect("a log line about the end");
    let log = gateway.log_lines();
    assert!(log.iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log:?}");
}
