//! Style of files: an opening comment, a maximum length, and no paths or registries of local machines.

use crate::CheckFindings;
use crate::files::{self, TrackedFile};

/// The number of lines from which a file needs an opening comment.
const MIN_LINES_FOR_OPENING: usize = 50;
/// The maximum number of lines of a source file.
const MAX_LINES: usize = 800;
/// Root folders that contain checkouts on developer machines and in CI.
const MACHINE_FOLDERS: &[&str] = &["Users", "builds", "home", "root", "tmp", "work", "workspace"];
/// Files that contain the sources of packages.
const LOCK_FILES: &[&str] = &["Cargo.lock", "package-lock.json", ".npmrc", "config.toml"];
/// The hosts that packages may be fetched from.
const ALLOWED_HOSTS: &[&str] = &["github.com", "index.crates.io", "registry.npmjs.org"];

/// Checks this repository.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    Ok(files::tracked_files()?.iter().flat_map(file_findings).collect())
}

fn file_findings(file: &TrackedFile) -> CheckFindings {
    let mut findings = CheckFindings::new();
    findings.extend(missing_opening(file));
    findings.extend(excess_length(file));
    findings.extend(machine_path(file));
    findings.extend(foreign_registry(file));
    findings
}

/// The opening comment of a source file, by language.
fn comment_opener(ending: &str) -> Option<&'static [&'static str]> {
    match ending {
        "rs" => Some(&["//!"]),
        "c" | "h" | "js" | "mjs" | "ts" => Some(&["//", "/*"]),
        _ => None,
    }
}

fn missing_opening(file: &TrackedFile) -> Option<String> {
    let openers = comment_opener(file.extension())?;
    // An executable file begins with its interpreter.
    let text = if file.text.starts_with("#!") {
        file.text.split_once('\n').map_or("", |(_, text)| text)
    } else {
        &file.text
    };
    let opened = openers.iter().any(|opener| text.starts_with(opener));
    let long = file.text.lines().count() >= MIN_LINES_FOR_OPENING;
    (long && !opened)
        .then(|| format!("{} does not open with `{}`: describe the file there", file.path, openers[0]))
}

fn excess_length(file: &TrackedFile) -> Option<String> {
    comment_opener(file.extension())?;
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| format!("{} has {lines} lines: split it", file.path))
}

fn machine_path(file: &TrackedFile) -> Option<String> {
    let found = |line: &str| MACHINE_FOLDERS.iter().any(|folder| names_folder(line, folder));
    let (number, line) = (1..).zip(file.text.lines()).find(|(_, line)| found(line))?;
    Some(format!("{}:{number} contains a path of a local machine: {}", file.path, line.trim()))
}

/// Whether a line contains `/folder/` at the start of a path.
fn names_folder(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    let begins = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "_.-/}*".contains(before))
    };
    line.match_indices(&path).any(|(at, _)| begins(at))
}

fn foreign_registry(file: &TrackedFile) -> Option<String> {
    let name = file.path.rsplit('/').next()?;
    let fetched = |line: &&str| ["source", "resolved", "registry"].iter().any(|word| line.contains(word));
    let foreign = |line: &str| url_host(line).is_some_and(|host| !ALLOWED_HOSTS.contains(&host));
    let mut lines = file.text.lines().filter(fetched);
    let line = lines.find(|line| LOCK_FILES.contains(&name) && foreign(line))?;
    Some(format!("{} fetches from a private registry: {}", file.path, line.trim()))
}

fn url_host(line: &str) -> Option<&str> {
    line.split_once("://")?.1.split(['/', '"', '\'', ':', '#']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> TrackedFile {
        TrackedFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn long_files_need_an_opening_comment() {
        assert!(missing_opening(&file("a.rs", "fn f() {}\n".repeat(50))).is_some());
        assert!(missing_opening(&file("a.js", "f();\n".repeat(50))).is_some());
        assert!(missing_opening(&file("a.rs", format!("//! What.\n{}", "fn f() {}\n".repeat(50)))).is_none());
        assert!(missing_opening(&file("a.rs", "fn f() {}\n".repeat(49))).is_none());
        assert!(missing_opening(&file("a.md", "text\n".repeat(50))).is_none());
    }

    #[test]
    fn finds_very_long_files() {
        assert!(excess_length(&file("a.rs", "//! What.\n".repeat(801))).is_some());
        assert!(excess_length(&file("a.rs", "//! What.\n".repeat(800))).is_none());
        assert!(excess_length(&file("Cargo.lock", "a\n".repeat(801))).is_none());
    }

    #[test]
    fn finds_paths_of_local_machines() {
        for folder in MACHINE_FOLDERS {
            assert!(machine_path(&file("a.md", format!("see /{folder}/me/a"))).is_some(), "{folder}");
        }
        assert!(machine_path(&file("a.md", "https://example.org/work/a and target/tmp/b")).is_none());
    }

    #[test]
    fn private_registries_are_found() {
        let lock = |url: &str| file("Cargo.lock", format!("source = \"registry+{url}\""));
        assert!(foreign_registry(&lock("https://packages.example.org/index")).is_some());
        assert!(foreign_registry(&lock("https://github.com/rust-lang/crates.io-index")).is_none());
    }
}
