//! The structures that hold bytes from outside across an `.await`, and their bounds: the table in
//! docs/bounds.md.
//!
//! Bounds that are settings have the values of the target's config (`world/orfa.yaml`). Each row names the
//! test that exceeds it. `hostile --binary orfa --bounds` prints the table for the page.

mod filters;
mod queries;
mod table;

use std::fmt::Write;
use std::sync::LazyLock;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All rows of the table.
pub static BOUNDS: LazyLock<Vec<BoundRow>> =
    LazyLock::new(|| [table::ROWS, queries::ROWS, filters::ROWS].concat());

/// A structure that holds bytes from outside, and its bound.
#[derive(Clone, Copy, Debug)]
pub struct BoundRow {
    /// The row's name, used by cases.
    pub name: &'static str,
    /// The maximum number of bytes of one structure.
    pub bytes: u64,
    /// The scope of one structure: one of [`SCOPES`].
    pub scope: &'static str,
    /// The setting or constant that bounds it.
    pub setting: &'static str,
    /// The file that enforces it.
    pub file: &'static str,
    /// The test that exceeds the bound and checks the refusal: its file, a colon, and its name.
    pub test: &'static str,
}

/// The possible scopes of a bound. A thread is a serving or a background thread; a `vm_id` belongs to
/// filters.
pub const SCOPES: [&str; 9] =
    ["request", "connection", "address", "caller", "route", "worker", "vm_id", "thread", "process"];

const fn bound(
    name: &'static str,
    bytes: u64,
    per: &'static str,
    setting: &'static str,
    file: &'static str,
    test: &'static str,
) -> BoundRow {
    BoundRow { name, bytes, scope: per, setting, file, test }
}

/// Returns the table of docs/bounds.md.
#[must_use]
pub fn bounds_table() -> String {
    let mut table = "| structure | bound | per | setting or constant | file | test |\n\
                     | --- | ---: | --- | --- | --- | --- |\n"
        .to_owned();
    for BoundRow { name, bytes, scope: per, setting, file, test } in &*BOUNDS {
        let (size, (path, test)) = (format_size(*bytes), test.split_once(": ").unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {name} | {size} | {per} | {setting} | [{file}](../{file}) | [{test}](../{path}) |"
        );
    }
    table
}

fn format_size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    fn read_file(path: &str) -> String {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn docs_bounds_contains_exactly_these_rows() {
        let page = read_file("docs/bounds.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
        let table = bounds_table();
        let expected: Vec<&str> = table.lines().collect();
        assert_eq!(rows, expected, "`hostile --binary orfa --bounds` prints the table for docs/bounds.md");
    }

    #[test]
    fn every_row_has_a_unique_name_a_scope_and_a_bound() {
        let names: BTreeSet<&str> = BOUNDS.iter().map(|bound| bound.name).collect();
        assert_eq!(names.len(), BOUNDS.len());
        assert!(names.contains("request"));
        for bound in &*BOUNDS {
            assert!(SCOPES.contains(&bound.scope) && bound.bytes > 0, "{bound:?}");
        }
    }

    #[test]
    fn every_row_names_an_existing_file_and_test() {
        for BoundRow { name, file: path, test, .. } in &*BOUNDS {
            assert!(!read_file(path).is_empty(), "{name}");
            let (path, test) = test.split_once(": ").expect("a file and a name");
            let text = read_file(path);
            let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("\"{test}\""));
            assert!(is_there, "{name}: {path} has no test {test}");
        }
    }
}
