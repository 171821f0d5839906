//! Sends a program again whenever it is saved.

use std::path::PathBuf;

use bytes::Bytes;
use http::HeaderMap;

use crate::commands::call::{self, PreparedProgram, ProgramCallRequest};
use crate::output::{exit, terminal};
use crate::process::watch::FileWatcher;

/// Sends the program now and after each change, without end; without a program it only waits.
pub(super) async fn send_on_change(program: Option<PathBuf>, input: Option<String>, url: String) {
    let Some(file) = program else { return std::future::pending().await };
    let mut watch = FileWatcher::new(vec![file.clone()]);
    loop {
        if let Err(error) = send_once(&file, input.as_deref(), &url).await {
            terminal::write_stderr(&exit::describe_error(&error));
        }
        watch.wait_for_change().await;
    }
}

async fn send_once(file: &std::path::Path, input: Option<&str>, url: &str) -> anyhow::Result<()> {
    let program = PreparedProgram::load(file)?;
    let question = ProgramCallRequest {
        url: url.to_owned(),
        program: program.bytes.clone(),
        content_type: program.content_type,
        input: input.map(|text| Bytes::copy_from_slice(text.as_bytes())),
        headers: HeaderMap::new(),
    };
    call::print_response(&question.send().await?, &program);
    Ok(())
}
