//! The commands of `orfa`: output, streams and exit codes. Those about S and GraphQL are tested with these
//! (`script/commands.rs`, `graphql/route.rs`).

mod call;
mod command_line;
mod dev;
mod filter;
mod types;

use std::path::Path;
use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::support::orfa_binary;

/// Runs `orfa` in a folder and waits for it to exit.
async fn run_orfa(folder: &Path, arguments: &[&str]) -> Output {
    let command =
        Command::new(orfa_binary()).args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    command.await.expect("orfa runs")
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates a folder with these files.
fn create_folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}
