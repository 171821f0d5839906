//! The files of the repository.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

/// A tracked text file.
pub(crate) struct TrackedFile {
    /// The path relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The root of the repository, relative to this package.
pub(crate) fn repository_root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), |xtask| PathBuf::from(xtask).join(".."))
}

/// Every tracked text file that exists.
pub(crate) fn tracked_files() -> anyhow::Result<Vec<TrackedFile>> {
    // In a container the checkout may belong to another user, which git refuses by default.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]).current_dir(repository_root());
    let output = git.output().context("git can't be run")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let paths = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
    let read = |path: &str| {
        let text = std::fs::read_to_string(repository_root().join(path)).ok()?;
        Some(TrackedFile { path: path.to_owned(), text })
    };
    Ok(paths.split_terminator('\0').filter_map(read).collect())
}

impl TrackedFile {
    /// The extension of the file's name, such as `rs`.
    pub(crate) fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, ending)| ending)
    }

    /// The file without tests: the text before the test module, or nothing if the whole file is a test.
    pub(crate) fn text_without_tests(&self) -> &str {
        let tests = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        let text = if tests { "" } else { self.text.as_str() };
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("")
    }
}
