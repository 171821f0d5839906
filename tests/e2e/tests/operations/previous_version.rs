//! The folder of a gateway of version 0.1, opened by this version: config, state, caches, tokens, recordings,
//! stored documents and programs. `fixtures/v0.1/README.md` describes how it was created.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde_json::{Value, json};
use testkit::http::request;
use testkit::{GatewayProcess, misbehaving_upstream};
use tokio::process::Command;

use crate::support::orfa_binary;

/// The folder of the fixture.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v0.1")
}

fn read_fixture(name: &str) -> Vec<u8> {
    fs::read(fixture().join(name)).expect("a file of the fixture")
}

/// The requests with the responses of version 0.1, and the tokens that it issued.
fn expected() -> Value {
    serde_json::from_slice(&read_fixture("expected.json")).expect("JSON")
}

/// Copies a folder. Files that a gateway keeps are private, which version control does not record.
fn copy_private(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).expect("permissions");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_private(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a copy");
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).expect("permissions");
        }
    }
}

/// Starts a gateway on a copy of the fixture.
async fn start_gateway(upstream: &str) -> GatewayProcess {
    let directory = tempfile::tempdir().expect("a temporary folder");
    copy_private(&fixture(), directory.path());
    let mut command = Command::new(orfa_binary());
    command.env("UP", upstream);
    GatewayProcess::start_in(command, directory).await
}

#[tokio::test]
async fn serves_the_config_and_the_state_of_version_0_1() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let expected = expected();
    for answer in expected["answers"].as_array().expect("a list") {
        let text = |name: &str| answer[name].as_str().expect("a text");
        let headers: Vec<(&str, &str)> = match text("method") {
            "POST" => vec![("content-type", "application/json")],
            _ => vec![],
        };
        let url = format!("{}{}", gateway.url, text("path"));
        let response =
            request(text("method"), &url, &headers, text("body").to_owned()).await.expect("a response");
        assert_eq!(
            (response.status, &response.json()),
            (StatusCode::OK, &answer["answer"]),
            "{}",
            text("path")
        );
    }
    // The state can be changed as before.
    let total = request("PUT", &format!("{}/counter/total", gateway.url), &[], "").await.expect("a response");
    assert_eq!(total.json(), json!(4));
}

#[tokio::test]
async fn programs_are_sent_again_at_most_once_after_an_update_from_version_0_1() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let (expected, url) = (expected(), format!("{}/query", gateway.url));
    for issued in expected["tokens"].as_array().expect("a list") {
        let text = |name: &str| issued[name].as_str().expect("a text");
        let (mode, mut token) = (text("mode"), text("token").to_owned());
        let mut programs_sent = 0;
        for _ in 0..3 {
            let cache = format!("{mode};token={token}");
            let headers = [("orfa-cache", &*cache), ("content-type", text("media_type"))];
            let mut response = request("POST", &url, &headers, "").await.expect("a response");
            if response.status == 409 {
                assert_eq!(response.json()["send_program"], true, "{}", response.text());
                programs_sent += 1;
                let headers = [("orfa-cache", mode), ("content-type", text("media_type"))];
                let program = read_fixture(text("program"));
                response = request("POST", &url, &headers, program).await.expect("a response");
                let cache = response.header("orfa-cache").split_once("token=").expect("a token").1;
                token = cache.split(';').next().unwrap_or_default().to_owned();
            }
            assert_eq!(response.status, 200, "{}", response.text());
            assert_eq!(response.json()["at"], "version 0.1");
        }
        assert!(programs_sent <= 1, "{issued}: sent {programs_sent} times");
    }
}

#[tokio::test]
async fn replays_a_recording_of_version_0_1() {
    let output = Command::new(orfa_binary())
        .args(["query", "replay"])
        .arg(fixture().join("recording.json"))
        .arg("--program")
        .arg(fixture().join("program.js"))
        .output()
        .await
        .expect("the command runs");
    let (answer, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    assert_eq!(answer.trim(), r#"{"items":[{"id":0,"name":"item 0"}],"at":"version 0.1"}"#);
    assert!(log.contains("as the recorded run"), "{log}");
}
