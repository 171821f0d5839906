//! Recorded runs of the shared gateway, for `orfa query replay` and `orfa query debug`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::{TestGateway, TestQuery, orfa_binary};

/// The recording of a run on the route `/recorded` of the shared gateway.
pub(crate) struct RecordedRun {
    pub(crate) bytes: Vec<u8>,
    pub(crate) json: Value,
}

impl RecordedRun {
    pub(crate) async fn record(query: TestQuery) -> Self {
        let gateway = TestGateway::shared().await;
        let response = query.with_path("/recorded").header("orfa-debug", "?1").send(&gateway).await;
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.header("content-type"), "application/vnd.orfa.recording+json");
        assert_eq!(response.header("cache-control"), "no-store");
        Self { bytes: response.body.to_vec(), json: response.json() }
    }

    /// Returns the status of the recorded answer, or the code of the recorded problem.
    pub(crate) fn outcome(&self) -> &Value {
        self.json.pointer("/end/answer/status").unwrap_or(&self.json["end"]["problem"]["code"])
    }

    pub(crate) async fn replay(&self, file: &str, program: &[u8]) -> Output {
        replay(&self.bytes, file, program).await
    }

    /// Runs the program natively with `orfa query debug --no-debugger`.
    pub(crate) async fn run_natively(&self, file: &str, program: &[u8]) -> Output {
        run_query_command(&["debug", "--no-debugger"], &self.bytes, file, program).await
    }

    /// Whether the recorded answer consists of these bytes.
    pub(crate) fn matches_answer(&self, bytes: &[u8]) -> bool {
        self.json["end"]["answer"]["sha256"] == sha256_hex(bytes)
    }

    /// Replays the run and asserts that it ends as recorded. Returns the output of the replay.
    pub(crate) async fn assert_replays(&self, file: &str, program: &[u8]) -> Output {
        let output = self.replay(file, program).await;
        let calls = self.json["calls"].as_array().expect("calls").len();
        let told = lossy_text(&output.stderr);
        let ended = told.lines().last().unwrap_or_default();
        let past = format!("orfa: ended at host call {}, as the recorded run", calls + 1);
        let inside = format!("orfa: ended at host call {calls}, as the recorded run");
        let stopped = self.json["end"]["problem"]["inside"] == false;
        assert!(ended == inside || (stopped && ended == past), "{told}\n{}", lossy_text(&self.bytes));
        output
    }
}

pub(crate) async fn replay(recording: &[u8], file: &str, program: &[u8]) -> Output {
    run_query_command(&["replay"], recording, file, program).await
}

/// Runs `orfa query VERB run.json --program FILE`.
async fn run_query_command(verb: &[&str], recording: &[u8], file: &str, program: &[u8]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    write_file(folder.path(), "run.json", recording);
    write_file(folder.path(), file, program);
    let mut command = Command::new(orfa_binary());
    command.arg("query").args(verb).args(["run.json", "--program", file]).current_dir(folder.path());
    command.output().await.expect("orfa runs")
}

pub(crate) fn write_file(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).expect("written");
}

pub(crate) fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
