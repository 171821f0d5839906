//! What `names` and `prose` share: the sources that they measure, measures with targets, and their table.
//!
//! Both commands read text and not syntax trees: they find where to look, and do not judge a single name. A
//! measure fails only above its target, never because it rose below it.

use std::cmp::Reverse;
use std::sync::LazyLock;

use regex::Regex;

use crate::CheckFindings;
use crate::files::TrackedFile;

/// The number of locations that are listed for a missed target.
const LISTED_LOCATIONS: usize = 20;
/// The folders whose Rust files are measured.
const MEASURED_FOLDERS: [&str; 2] = ["crates/", "environments/"];

static TEST_PATH: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"(^|/)(tests?|fuzz|benches|examples)(/|\.rs$)"));
static TEST_MODULE: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"#\[cfg\(test\)\]\s*mod \w+ \{"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"//[^\n]*"));
static STRING: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r#""(?:[^"\\\n]|\\.)*""#));

/// A measured Rust file without its tests.
pub(crate) struct SourceFile<'a> {
    /// The path relative to the root, with `/`.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
}

/// A figure of the whole workspace and the highest value that it may have.
#[derive(Debug)]
pub(crate) struct WorkspaceMeasure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) target: f64,
    /// The locations that raise the value, worst first.
    pub(crate) locations: Vec<RaisedAt>,
}

/// A place in the repository that raises a measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RaisedAt {
    /// `path:line`, or the short hash of a commit.
    pub(crate) at: String,
    pub(crate) text: String,
}

/// Compiles a pattern of this crate.
pub(crate) fn compile_pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns are constants and covered by tests")
}

/// Whether a path is that of tests, fuzz targets, benches or examples.
pub(crate) fn is_test_path(path: &str) -> bool {
    TEST_PATH.is_match(path)
}

/// Returns the measured sources: Rust outside of tests, fuzz targets, benches and examples.
pub(crate) fn sources(files: &[TrackedFile]) -> Vec<SourceFile<'_>> {
    let is_measured = |file: &&TrackedFile| {
        let is_inside = MEASURED_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
        is_inside && file.extension() == "rs" && !is_test_path(&file.path)
    };
    files.iter().filter(is_measured).map(without_tests).collect()
}

/// Returns a Rust file up to its test module.
pub(crate) fn without_tests(file: &TrackedFile) -> SourceFile<'_> {
    let end = TEST_MODULE.find(&file.text).map_or(file.text.len(), |module| module.start());
    SourceFile { path: &file.path, text: &file.text[..end] }
}

impl SourceFile<'_> {
    /// Returns the text without line comments and without the contents of strings. Line numbers stay.
    pub(crate) fn code(&self) -> String {
        let code = COMMENT.replace_all(self.text, "");
        STRING.replace_all(&code, r#""""#).into_owned()
    }
}

/// Returns the `path:line` of an offset in a text.
pub(crate) fn line_at(path: &str, text: &str, offset: usize) -> String {
    let line = 1 + text[..offset].matches('\n').count();
    format!("{path}:{line}")
}

/// Returns how many percent of the whole a part is.
pub(crate) fn percent(part: usize, whole: usize) -> f64 {
    scaled_share(100, part, whole)
}

/// Returns the part that corresponds to a whole of `scale`.
pub(crate) fn scaled_share(scale: usize, part: usize, whole: usize) -> f64 {
    to_float(scale) * to_float(part) / to_float(whole.max(1))
}

/// Converts a count.
pub(crate) fn to_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// Sorts locations by weight, highest first. Those of equal weight keep their order.
pub(crate) fn worst_first(mut locations: Vec<(usize, RaisedAt)>) -> Vec<RaisedAt> {
    locations.sort_by_key(|(weight, _)| Reverse(*weight));
    locations.into_iter().map(|(_, location)| location).collect()
}

/// Prints the table of measures and returns a finding for each missed target.
pub(crate) fn report(measures: &[WorkspaceMeasure]) -> CheckFindings {
    println!("{:28} {:>7}   target", "measure", "value");
    for measure in measures {
        let WorkspaceMeasure { name, value, target, .. } = measure;
        let mark = if measure.is_missed() { "MISSED" } else { "" };
        println!("{name:28} {value:7.1}   <= {target:<4} {mark}");
    }
    measures.iter().filter(|measure| measure.is_missed()).map(WorkspaceMeasure::finding).collect()
}

impl WorkspaceMeasure {
    fn is_missed(&self) -> bool {
        self.value > self.target
    }

    fn finding(&self) -> String {
        let Self { name, value, target, locations } = self;
        let mut lines =
            vec![format!("{name} is {value:.1}, above its target of {target}. The worst places:")];
        let worst = locations.iter().take(LISTED_LOCATIONS);
        lines.extend(worst.map(|RaisedAt { at, text }| format!("{at}  {text}")));
        lines.join("\n    ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TrackedFile {
        TrackedFile { path: path.into(), text: text.into() }
    }

    fn measure(value: f64, locations: usize) -> WorkspaceMeasure {
        let location = RaisedAt { at: "a.rs:1".into(), text: "type `A`".into() };
        WorkspaceMeasure { name: "a", value, target: 3.0, locations: vec![location; locations] }
    }

    #[test]
    fn measures_rust_outside_of_tests() {
        let files = [
            file("crates/a/src/lib.rs", "struct A;\n#[cfg(test)]\nmod tests {\n struct B;\n}\n"),
            file("crates/a/src/tests/b.rs", ""),
            file("crates/a/src/b/tests.rs", ""),
            file("crates/a/src/fuzz.rs", ""),
            file("crates/a/src/contests.rs", ""),
            file("crates/a/README.md", ""),
            file("xtask/src/main.rs", ""),
        ];
        let sources = sources(&files);
        let paths: Vec<&str> = sources.iter().map(|source| source.path).collect();
        assert_eq!(paths, ["crates/a/src/lib.rs", "crates/a/src/contests.rs"]);
        assert_eq!(sources[0].text, "struct A;\n");
    }

    #[test]
    fn code_has_no_comments_and_no_strings() {
        let source = SourceFile { path: "a.rs", text: "f(\"a \\\" b\"); // c\ng();\n" };
        assert_eq!(source.code(), "f(\"\"); \ng();\n");
    }

    #[test]
    fn fails_only_above_the_target() {
        assert_eq!(report(&[measure(2.9, 1), measure(3.0, 1)]), [""; 0]);
        assert_eq!(report(&[measure(3.1, 1), measure(2.0, 0)]).len(), 1);
    }

    #[test]
    fn lists_at_most_twenty_places() {
        assert_eq!(measure(4.0, 50).finding().lines().count(), 21);
    }

    #[test]
    fn sorts_by_weight() {
        let location = |at: &str| RaisedAt { at: at.into(), text: String::new() };
        let sorted = worst_first(vec![(1, location("a")), (3, location("b")), (1, location("c"))]);
        assert_eq!(sorted, [location("b"), location("a"), location("c")]);
    }

    #[test]
    fn locates_lines() {
        assert_eq!(line_at("a.rs", "a\nb\nc", 4), "a.rs:3");
        assert_eq!(line_at("a.rs", "a\nb\nc", 0), "a.rs:1");
    }
}
