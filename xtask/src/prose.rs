//! `cargo xtask prose`: measures of comments, of the width of Markdown and comments, and of commit subjects.
//!
//! A doc comment opens with a noun phrase or a verb in the third person, and its sentences have nouns as
//! subjects. CONTRIBUTING.md describes how to use the table.

use std::process::{Command, Output};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use regex::Regex;

use crate::CheckFindings;
use crate::files::{self, TrackedFile};
use crate::vocabulary::{
    self, RaisedAt, SourceFile, WorkspaceMeasure, compile_pattern, percent, scaled_share, to_float,
    worst_first,
};

/// Subjects of later commits are measured.
const BASE_COMMIT: &str = "d18860b";
/// The maximum number of characters of a commit's subject.
const SUBJECT_WIDTH: usize = 72;
/// The maximum number of characters of a comment's line, the same as rustfmt's.
const COMMENT_WIDTH: usize = 110;
/// The maximum number of characters of a Markdown line outside of tables, links and code.
const MARKDOWN_WIDTH: usize = 130;
/// The number of characters that are shown of a comment, and those of them before the match.
const EXCERPT: (usize, usize) = (90, 30);

/// Words with a limit for 10,000 words of comments: the measure, the pattern, the target.
const WORDS: [(&str, &str, f64); 4] = [
    ("what_per_10k", r"(?i)\b(what)\b", 20.0),
    ("say/tell_per_10k", r"(?i)\b((?:says|said|told|tells))\b", 5.0),
    ("who/nobody_per_10k", r"(?i)\b((?:nobody|somebody|who|whoever))\b", 5.0),
    ("stand_per_10k", r"(?i)\b(stands?)\b", 2.0),
];
/// Phrases that comments must not contain. The first group is the phrase; a match without it is allowed.
const DENIED_PHRASES: [&str; 6] = [
    r"(?i)\bthere (?:is|are) no(?:ne)?\b|\b(?:is|are) no longer\b|\b((?:is|are) no(?:ne)?)\b",
    r"(?i)\b(so many)\b",
    r"(?i)(, of (?:which|whom))\b",
    r"(?i)\b(strangers?)\b",
    r"(?i)\b(forgives?)\b",
    r"(?i)\b(the house)\b",
];

static COMMENT_LINE: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"^\s*(//[/!]?)\s?(.*)"));
static PRONOUN_OPENER: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^(What|Who|Whose|Whom|Which|That of|Those|The same|None|Nothing|It|One|So many|As many|Where|When|How)\b",
    )
});

/// Adjacent comment lines of one kind.
struct CommentBlock<'a> {
    path: &'a str,
    /// The number of its first line.
    line: usize,
    /// `//`, `///` or `//!`.
    kind: &'a str,
    /// The lines without their marks, joined by spaces.
    text: String,
}

/// Measures this repository, prints the table and returns the missed targets.
pub(crate) fn run() -> anyhow::Result<CheckFindings> {
    let files = files::tracked_files()?;
    let mut measures = comment_measures(&vocabulary::sources(&files));
    measures.push(width_measure("comment_lines_over_110", &files, wide_comments));
    measures.push(width_measure("markdown_lines_over_130", &files, wide_markdown));
    measures.extend(commits()?.map(|commits| subject_measure(&commits)));
    Ok(vocabulary::report(&measures))
}

fn comment_measures(sources: &[SourceFile]) -> Vec<WorkspaceMeasure> {
    let blocks: Vec<CommentBlock> = sources.iter().flat_map(comment_blocks).collect();
    let words: usize = blocks.iter().map(|block| block.text.split_whitespace().count()).sum();
    let mut measures = vec![opener_measure(&blocks)];
    for (name, pattern, target) in WORDS {
        let (count, locations) = occurrences(&blocks, &compile_pattern(pattern));
        measures.push(WorkspaceMeasure {
            name,
            value: scaled_share(10_000, count, words),
            target,
            locations,
        });
    }
    let phrases = DENIED_PHRASES.iter().map(|pattern| occurrences(&blocks, &compile_pattern(pattern)));
    let (counts, locations): (Vec<usize>, Vec<Vec<RaisedAt>>) = phrases.unzip();
    measures.push(WorkspaceMeasure {
        name: "denied_phrases",
        value: to_float(counts.iter().sum()),
        target: 0.0,
        locations: locations.concat(),
    });
    measures
}

fn opener_measure(blocks: &[CommentBlock]) -> WorkspaceMeasure {
    let docs: Vec<_> = blocks.iter().filter(|block| block.kind == "///" && !block.text.is_empty()).collect();
    let opened = docs.iter().filter(|block| PRONOUN_OPENER.is_match(&block.text));
    let locations: Vec<RaisedAt> = opened.map(|block| block.location(0)).collect();
    let value = percent(locations.len(), docs.len());
    WorkspaceMeasure { name: "pronoun_openers_%", value, target: 3.0, locations }
}

/// Returns the comments of a source in order.
fn comment_blocks<'a>(source: &SourceFile<'a>) -> Vec<CommentBlock<'a>> {
    let mut blocks: Vec<CommentBlock> = Vec::new();
    let mut is_open = false;
    for (line, text) in (1..).zip(source.text.split('\n')) {
        let Some(captures) = COMMENT_LINE.captures(text) else {
            is_open = false;
            continue;
        };
        let (_, [kind, content]) = captures.extract();
        match blocks.last_mut() {
            Some(block) if is_open && block.kind == kind => {
                block.text.push(' ');
                block.text.push_str(content);
            }
            _ => blocks.push(CommentBlock { path: source.path, line, kind, text: content.to_owned() }),
        }
        is_open = true;
    }
    for block in &mut blocks {
        block.text = block.text.trim().to_owned();
    }
    blocks
}

impl CommentBlock<'_> {
    /// Returns the location of the block with an excerpt around an offset in its text.
    fn location(&self, offset: usize) -> RaisedAt {
        let (length, before) = EXCERPT;
        let mut starts = self.text[..offset].char_indices().rev().map(|(start, _)| start);
        let start = starts.nth(before - 1).unwrap_or(0);
        RaisedAt {
            at: format!("{}:{}", self.path, self.line),
            text: self.text[start..].chars().take(length).collect(),
        }
    }
}

/// Counts matches of a pattern's first group. The locations have one entry for each comment, those with most
/// matches first.
fn occurrences(blocks: &[CommentBlock], pattern: &Regex) -> (usize, Vec<RaisedAt>) {
    let mut total = 0;
    let mut locations = Vec::new();
    for block in blocks {
        let matches = pattern.captures_iter(&block.text).filter_map(|captures| captures.get(1));
        let offsets: Vec<usize> = matches.map(|found| found.start()).collect();
        total += offsets.len();
        locations.extend(offsets.first().map(|offset| (offsets.len(), block.location(*offset))));
    }
    (total, worst_first(locations))
}

/// Counts the lines that a function of a file finds too wide, given as line number and width.
fn width_measure(
    name: &'static str,
    files: &[TrackedFile],
    wide: fn(&TrackedFile) -> Vec<(usize, usize)>,
) -> WorkspaceMeasure {
    let mut locations = Vec::new();
    for file in files {
        for (line, width) in wide(file) {
            let at = format!("{}:{line}", file.path);
            locations.push((width, RaisedAt { at, text: format!("{width} characters") }));
        }
    }
    WorkspaceMeasure {
        name,
        value: to_float(locations.len()),
        target: 0.0,
        locations: worst_first(locations),
    }
}

/// Finds wide comment lines in Rust. URLs and tables cannot be wrapped.
fn wide_comments(file: &TrackedFile) -> Vec<(usize, usize)> {
    if file.extension() != "rs" {
        return Vec::new();
    }
    let is_wrapped = |line: &str| {
        let content = COMMENT_LINE.captures(line).and_then(|captures| captures.get(2));
        content.is_some_and(|content| !content.as_str().starts_with('|') && !line.contains("://"))
    };
    wide_lines(&file.text, COMMENT_WIDTH, is_wrapped)
}

/// Finds wide lines in Markdown outside of tables, links and code blocks.
fn wide_markdown(file: &TrackedFile) -> Vec<(usize, usize)> {
    if file.extension() != "md" {
        return Vec::new();
    }
    let mut is_code = false;
    let is_wrapped = |line: &str| {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let is_link = line.contains("](") || line.contains("]: ") || line.contains("://");
        !is_code && !is_fence && !text.starts_with('|') && !is_link
    };
    wide_lines(&file.text, MARKDOWN_WIDTH, is_wrapped)
}

fn wide_lines(text: &str, limit: usize, mut is_wrapped: impl FnMut(&str) -> bool) -> Vec<(usize, usize)> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| is_wrapped(line));
    lines.map(|(number, line)| (number, line.chars().count())).filter(|(_, width)| *width > limit).collect()
}

fn subject_measure(commits: &[(String, String)]) -> WorkspaceMeasure {
    let mut wide = Vec::new();
    for (hash, subject) in commits {
        let width = subject.chars().count();
        if width > SUBJECT_WIDTH {
            wide.push((width, RaisedAt { at: hash.clone(), text: subject.clone() }));
        }
    }
    let value = percent(wide.len(), commits.len());
    WorkspaceMeasure { name: "commit_subjects_over_72_%", value, target: 10.0, locations: worst_first(wide) }
}

/// The short hash and the subject of each commit after the base, without merges, if the clone has the base.
fn commits() -> anyhow::Result<Option<Vec<(String, String)>>> {
    let base = format!("{BASE_COMMIT}^{{commit}}");
    if !git(&["cat-file", "-e", &base])?.status.success() {
        println!("commit subjects are not measured without the history since {BASE_COMMIT}");
        return Ok(None);
    }
    let log = git(&["log", "--no-merges", "--format=%h %s", &format!("{BASE_COMMIT}..HEAD")])?;
    ensure!(log.status.success(), "git log: {}", String::from_utf8_lossy(&log.stderr).trim());
    let log = String::from_utf8_lossy(&log.stdout);
    let split = |line: &str| {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        (hash.to_owned(), subject.to_owned())
    };
    Ok(Some(log.lines().map(split).collect()))
}

fn git(arguments: &[&str]) -> anyhow::Result<Output> {
    // In a container the checkout may belong to another user, which git refuses by default.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(arguments);
    git.current_dir(files::repository_root()).output().context("git can't be run")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<CommentBlock<'_>> {
        comment_blocks(&SourceFile { path: "a.rs", text })
    }

    fn value(text: &str, name: &str) -> f64 {
        let measures = comment_measures(&[SourceFile { path: "a.rs", text }]);
        measures.into_iter().find(|measure| measure.name == name).unwrap().value
    }

    fn file(path: &str, text: String) -> TrackedFile {
        TrackedFile { path: path.into(), text }
    }

    #[test]
    fn joins_adjacent_lines_of_one_kind() {
        let blocks = blocks("//! A\n//! b.\n/// C.\nfn f() {}\n    // D\n    //\n    // e.\n\n// F.");
        let read: Vec<_> = blocks.iter().map(|block| (block.line, block.kind, block.text.as_str())).collect();
        let expected = [(1, "//!", "A b."), (3, "///", "C."), (5, "//", "D  e."), (9, "//", "F.")];
        assert_eq!(read, expected);
    }

    #[test]
    fn comments_behind_code_are_not_read() {
        assert!(blocks("f(); // What.\n").is_empty());
    }

    #[test]
    fn counts_pronoun_openers_of_doc_comments() {
        let text = "/// What it is.\nfn f() {}\n/// Whatever.\nfn g() {}\n// What else.\n";
        assert!((value(text, "pronoun_openers_%") - 50.0).abs() < 1e-9);
    }

    #[test]
    fn counts_words_in_ten_thousand() {
        assert!((value("// What and what and whatever.\n", "what_per_10k") - 4000.0).abs() < 1e-9);
        assert!((value("/// A stand\n/// stands.\n", "stand_per_10k") - 6_666.666_666).abs() < 1e-3);
    }

    #[test]
    fn denies_phrases() {
        let denied = "// It is no error, of which\n// there are so many.\n";
        assert!((value(denied, "denied_phrases") - 3.0).abs() < 1e-9);
        let allowed = "// There is no error, it is no longer one, and each of which\n// there is none.\n";
        assert!(value(allowed, "denied_phrases") < 1e-9);
    }

    #[test]
    fn excerpts_show_the_match() {
        let text = format!("// {}what", "é ".repeat(100));
        let (count, locations) = occurrences(&blocks(&text), &compile_pattern("(what)"));
        assert_eq!(count, 1);
        assert!(locations[0].text.ends_with("é what"));
        assert_eq!(locations[0].text.chars().count(), 34);
    }

    #[test]
    fn finds_wide_comments() {
        let wide = "a".repeat(108);
        assert_eq!(wide_comments(&file("a.rs", format!("f();\n// {wide}\n"))), [(2, 111)]);
        assert!(wide_comments(&file("a.rs", format!("//{wide}\n"))).is_empty());
        assert!(wide_comments(&file("a.rs", format!("// https://{wide}\n//! | {wide} |\n"))).is_empty());
    }

    #[test]
    fn finds_wide_markdown_outside_of_tables_links_and_code() {
        let wide = "a".repeat(131);
        assert_eq!(wide_markdown(&file("a.md", format!("# A\n\n{wide}\n"))), [(3, 131)]);
        let excluded = format!("| {wide} |\n[a](b) {wide}\n```sh\n{wide}\n```\n");
        assert!(wide_markdown(&file("a.md", excluded.clone())).is_empty());
        assert_eq!(wide_markdown(&file("a.md", excluded + &wide)).len(), 1);
    }

    #[test]
    fn measures_long_subjects() {
        let commit = |width: usize| ("abc".to_owned(), "a".repeat(width));
        assert!((subject_measure(&[commit(72), commit(73)]).value - 50.0).abs() < 1e-9);
        assert!(subject_measure(&[]).value < 1e-9);
    }
}
