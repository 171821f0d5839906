//! What holds bytes from outside across an `.await`, and the bound of each: the table behind docs/bounds.md.
//!
//! The bounds are those of the target's config (`world/orfa.yaml`), where a bound is a setting. Each row names the test that
//! exceeds it. `hostile --binary orfa --bounds` prints the table as the page has it.

mod filters;
mod table;

use std::fmt::Write;
use std::sync::LazyLock;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All rows.
pub static BOUNDS: LazyLock<Vec<Bound>> = LazyLock::new(|| [table::ROWS, filters::ROWS].concat());

/// A structure that holds bytes from outside, and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The row's name, by which cases refer to it.
    pub name: &'static str,
    /// The most bytes of one of them.
    pub bytes: u64,
    /// What there is one of: see [`SCOPES`].
    pub per: &'static str,
    /// The setting or constant that bounds it.
    pub setting: &'static str,
    /// The file that enforces it.
    pub file: &'static str,
    /// The test that sends one more than the bound, and sees the refusal: its file, a colon, and its name.
    pub test: &'static str,
}

/// What a bound can be one of. A thread is one that serves or works in the background; a `vm_id` is one of filters.
pub const SCOPES: [&str; 9] =
    ["request", "connection", "address", "caller", "route", "worker", "vm_id", "thread", "process"];

const fn bound(
    name: &'static str,
    bytes: u64,
    per: &'static str,
    setting: &'static str,
    file: &'static str,
    test: &'static str,
) -> Bound {
    Bound { name, bytes, per, setting, file, test }
}

/// The table of docs/bounds.md.
#[must_use]
pub fn bounds_table() -> String {
    let mut table = "| structure | bound | per | setting or constant | file | test |\n\
                     | --- | ---: | --- | --- | --- | --- |\n"
        .to_owned();
    for Bound { name, bytes, per, setting, file, test } in &*BOUNDS {
        let (size, (path, test)) = (size(*bytes), test.split_once(": ").unwrap_or_default());
        // A string takes everything.
        let _ = writeln!(
            table,
            "| {name} | {size} | {per} | {setting} | [{file}](../{file}) | [{test}](../{path}) |"
        );
    }
    table
}

fn size(bytes: u64) -> String {
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

    fn file(path: &str) -> String {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn the_page_has_these_rows() {
        let page = file("docs/bounds.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
        let table = bounds_table();
        let expected: Vec<&str> = table.lines().collect();
        assert_eq!(rows, expected, "`hostile --binary orfa --bounds` prints the table for docs/bounds.md");
    }

    #[test]
    fn every_row_has_a_name_of_its_own_a_scope_and_a_bound() {
        let names: BTreeSet<&str> = BOUNDS.iter().map(|bound| bound.name).collect();
        assert_eq!(names.len(), BOUNDS.len());
        assert!(names.contains("request"));
        for bound in &*BOUNDS {
            assert!(SCOPES.contains(&bound.per) && bound.bytes > 0, "{bound:?}");
        }
    }

    #[test]
    fn every_row_names_a_file_and_a_test_that_there_are() {
        for Bound { name, file: path, test, .. } in &*BOUNDS {
            assert!(!file(path).is_empty(), "{name}");
            let (path, test) = test.split_once(": ").expect("a file and a name");
            let text = file(path);
            let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("\"{test}\""));
            assert!(is_there, "{name}: {path} has no test {test}");
        }
    }
}
