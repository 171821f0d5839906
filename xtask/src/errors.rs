//! Comparison of docs/errors.md with the sources: the page has every error code, and no other.
//!
//! Codes are extracted from the sources: strings returned by functions named `code` or `..._code`, and those
//! in `CliError`s of `orfa`. The page's rows begin with a code, and its parts are headings. End-to-end tests
//! compare a row's status with the actual one; here only its consistency with the fault is checked.

use std::collections::BTreeSet;

use crate::CheckFindings;
use crate::files::{self, TrackedFile};

/// The page.
const PAGE: &str = "docs/errors.md";
/// The parts of the page: the heading, and the sources of the codes below it.
const PARTS: [(&str, &[&str]); 8] = [
    (
        "## Over HTTP",
        &[
            "crates/gateway/src/",
            "crates/services/src/",
            "crates/query/src/",
            "crates/filter/src/error/problem.rs",
            "crates/script-runtime/src/",
            "crates/aggregate/src/problem.rs",
            "crates/graphql/src/serve/problem.rs",
        ],
    ),
    ("## Of a filter that is refused", &["crates/filter/src/error/refused.rs"]),
    ("## Of an S script", &["crates/script/src/"]),
    ("## Of an aggregate's declaration", &["crates/aggregate/src/declaration/error_kind.rs"]),
    (
        "## Of GraphQL",
        &[
            "crates/graphql/src/schema/diagnostic.rs",
            "crates/graphql/src/compose/",
            "crates/graphql/src/error.rs",
            "crates/graphql/src/plan",
            "crates/graphql/src/execute",
            "crates/graphql/src/fetch/call_failure.rs",
            "crates/graphql/src/serve/refusal.rs",
        ],
    ),
    ("## Of the store", &["crates/store/src/"]),
    ("## Of a deduplicated text", &["crates/dedup/src/"]),
    ("## On the command line", &["crates/cli/src/"]),
];

/// Checks this repository.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    let files = files::tracked_files()?;
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str());
    let mut findings = CheckFindings::new();
    for (heading, folders) in PARTS {
        let ours = |file: &&TrackedFile| folders.iter().any(|folder| file.path.starts_with(folder));
        let sources = files.iter().filter(ours).filter(|file| file.extension() == "rs");
        let codes = sources.flat_map(|file| source_codes(file.text_without_tests())).collect();
        findings.extend(differences(heading, &codes, &listed_codes(page, heading)));
    }
    findings.extend(page.lines().filter_map(status_contradiction));
    Ok(findings)
}

fn differences(heading: &str, codes: &BTreeSet<String>, rows: &BTreeSet<String>) -> CheckFindings {
    let missing = codes.difference(rows).map(|code| format!("{PAGE} lacks `{code}` under `{heading}`"));
    let idle = rows.difference(codes).map(|code| format!("{PAGE} has `{code}`, which is not in the sources"));
    missing.chain(idle).collect()
}

/// The codes of the table under a heading.
fn listed_codes(page: &str, heading: &str) -> BTreeSet<String> {
    let part = page.split_once(heading).map_or("", |(_, part)| part);
    let part = part.split("\n## ").next().unwrap_or("");
    let code = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    part.lines().filter_map(code).collect()
}

/// Reports a row with contradicting fault and status.
fn status_contradiction(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
    let [code, status, fault, _, _] = cells[..] else { return None };
    let status: u16 = status.parse().ok()?;
    let fits = match fault {
        "client" => matches!(status, 400..=499 | 501 | 508),
        "program" => status == 422,
        "upstream" => matches!(status, 502 | 504 | 508),
        "gateway" => matches!(status, 500 | 503),
        _ => false,
    };
    (!fits).then(|| format!("{PAGE}: status {status} does not fit the fault `{fault}`: `{code}"))
}

/// The codes that a source file returns or passes to `CliError`.
fn source_codes(source: &str) -> BTreeSet<String> {
    let returned = code_function_bodies(source).flat_map(quoted_texts).filter(|text| is_code(text));
    let reported = source.split("CliError::").skip(1).filter_map(cli_error_code);
    returned.chain(reported).map(str::to_owned).collect()
}

/// The bodies of functions called `code` or `..._code` that return text.
fn code_function_bodies(source: &str) -> impl Iterator<Item = &str> {
    source.split("fn ").skip(1).filter_map(|function| {
        let (head, body) = function.split_once('{')?;
        let (name, signature) = head.split_once('(')?;
        let named = name == "code" || name.ends_with("_code");
        (named && signature.contains("-> &'static str")).then(|| braced_block(body))
    })
}

/// A block up to its closing brace.
fn braced_block(body: &str) -> &str {
    let mut depth = 1;
    let end = body.find(|letter| {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or(body, |end| &body[..end])
}

/// The quoted strings of a function body.
fn quoted_texts(body: &str) -> impl Iterator<Item = &str> {
    body.split('"').skip(1).step_by(2)
}

/// The code in `usage("bad-url", ...` and similar calls.
fn cli_error_code(call: &str) -> Option<&str> {
    let (name, arguments) = call.split_once('(')?;
    let code = arguments.trim_start().strip_prefix('"')?.split('"').next()?;
    (["usage", "failed", "internal"].contains(&name) && is_code(code)).then_some(code)
}

fn is_code(text: &str) -> bool {
    let is_ours = text.contains('-') && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase());
    // GraphQL's own tools use upper case.
    let is_graphql = text.contains('_') && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase());
    is_ours || is_graphql
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        fn code(&self) -> &'static str {
            match self {
                Self::Cpu { .. } => "limit-cpu",
                Self::Other(_) => other_code(self),
            }
        }
        fn other_code(kind: Kind) -> &'static str { "not-found" }
        fn hint(&self) -> &'static str { "look-elsewhere" }
        fn refuse() { CliError::usage(
            "bad-url", text, "") }
    "#;

    fn code_set(codes: &[&str]) -> BTreeSet<String> {
        codes.iter().map(|code| (*code).to_owned()).collect()
    }

    #[test]
    fn extracts_codes_from_sources() {
        assert_eq!(source_codes(SOURCE), code_set(&["limit-cpu", "not-found", "bad-url"]));
    }

    #[test]
    fn a_row_belongs_to_its_heading() {
        let page = "## A\n| code |\n| `a-b` | 422 |\n\n## B\n| `c-d` | 1 |\n";
        assert_eq!(listed_codes(page, "## A"), code_set(&["a-b"]));
        assert_eq!(listed_codes(page, "## B"), code_set(&["c-d"]));
    }

    #[test]
    fn finds_statuses_that_do_not_fit_the_fault() {
        assert!(status_contradiction("| `a-b` | 500 | client | x |").is_some());
        assert!(status_contradiction("| `a-b` | 503 | gateway | x |").is_none());
        assert!(status_contradiction("| `a-b` | 1 | x |").is_none());
    }

    #[test]
    fn finds_missing_and_unknown_codes() {
        assert_eq!(differences("## A", &code_set(&["a-b"]), &code_set(&["c-d"])).len(), 2);
        assert_eq!(differences("## A", &code_set(&["a-b"]), &code_set(&["a-b"])), [""; 0]);
    }
}
