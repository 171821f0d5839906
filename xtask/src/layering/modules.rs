//! The top-level modules of each crate: at most twelve, and no cycles among them.
//!
//! `foo.rs` and the files in `foo/` are one module. Programs below `src/bin/` are crates of their own and are
//! not checked. Tests and fuzz targets count as modules, but may use each other and all others.

use std::collections::{BTreeMap, BTreeSet};

use super::cycles::{self, ModuleCycle};
use crate::CheckFindings;
use crate::files::TrackedFile;
use crate::vocabulary;

/// The highest number of top-level modules below `src/`, apart from `lib.rs` and `main.rs`.
const MAX_MODULES: usize = 12;
/// The number of uses that are listed for a cycle.
const LISTED_USES: usize = 10;

/// A cycle that is allowed: the folder of the crate, all modules of the cycle, and the reason.
type CycleException = (&'static str, &'static [&'static str], &'static str);
/// A number of modules above [`MAX_MODULES`] that is allowed: the folder of the crate, the number, and the
/// reason.
type SizeException = (&'static str, usize, &'static str);

/// The allowed cycles. A new cycle is better broken: move the shared item to the lower module, or pass data
/// down. An entry whose cycle is gone or has other modules is a finding too.
const CYCLE_EXCEPTIONS: &[CycleException] = &[];

/// The crates that may have more modules. A crate with too many groups them by topic, in folders.
const SIZE_EXCEPTIONS: &[SizeException] = &[];

/// Checks the modules of all crates.
pub(super) fn check(files: &[TrackedFile]) -> CheckFindings {
    let mut findings = size_findings(files, SIZE_EXCEPTIONS);
    findings.extend(cycle_findings(files, CYCLE_EXCEPTIONS));
    findings
}

/// Splits the path of a Rust file into the folder of its crate and the path below `src/`.
fn split_source_path(file: &TrackedFile) -> Option<(&str, &str)> {
    if file.extension() == "rs" { file.path.split_once("/src/") } else { None }
}

fn size_findings(files: &[TrackedFile], exceptions: &[SizeException]) -> CheckFindings {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (folder, inner) in files.iter().filter_map(split_source_path) {
        crates.entry(folder).or_default().extend(cycles::top_module(inner));
    }
    let mut findings = CheckFindings::new();
    for (folder, modules) in &crates {
        let exception = exceptions.iter().find(|(crate_folder, ..)| crate_folder == folder);
        let allowed = exception.map_or(MAX_MODULES, |(_, allowed, _)| *allowed);
        let number = modules.len();
        if number > allowed {
            findings.push(format!(
                "{folder}/src has {number} top-level modules, {allowed} are allowed: group them by topic in folders"
            ));
        } else if exception.is_some() && number < allowed {
            findings.push(format!(
                "{folder}/src has {number} top-level modules and not {allowed}: correct SIZE_EXCEPTIONS in \
                 xtask/src/layering/modules.rs"
            ));
        }
    }
    findings
}

fn cycle_findings(files: &[TrackedFile], exceptions: &[CycleException]) -> CheckFindings {
    let is_checked = |file: &&TrackedFile| {
        split_source_path(file).is_some_and(|(_, inner)| !vocabulary::is_test_path(inner))
    };
    let sources = files.iter().filter(is_checked).map(vocabulary::without_tests);
    let code: Vec<(&str, String)> = sources.map(|source| (source.path, source.code())).collect();
    let found = cycles::cycles(&code);
    let matches = |cycle: &ModuleCycle, (folder, modules, _): &CycleException| {
        cycle.crate_folder == *folder && cycle.modules == *modules
    };
    let is_new = |cycle: &&ModuleCycle| !exceptions.iter().any(|exception| matches(cycle, exception));
    let is_stale = |exception: &&CycleException| !found.iter().any(|cycle| matches(cycle, exception));
    let stale = exceptions.iter().filter(is_stale).map(|(folder, modules, _)| {
        format!(
            "{folder}/src has no cycle among exactly {}: correct CYCLE_EXCEPTIONS in xtask/src/layering/modules.rs",
            modules.join(", ")
        )
    });
    found.iter().filter(is_new).map(cycle_finding).chain(stale).collect()
}

/// Describes a cycle, and the uses that are the cheapest to remove.
fn cycle_finding(cycle: &ModuleCycle) -> String {
    let ModuleCycle { crate_folder, modules, uses } = cycle;
    let mut lines =
        vec![format!("{crate_folder}/src has a cycle of modules: {}. The rarest uses:", modules.join(", "))];
    lines.extend(uses.iter().take(LISTED_USES).map(|used| format!("{}  {}", used.at, used.text)));
    lines.join("\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TrackedFile {
        TrackedFile { path: path.into(), text: text.into() }
    }

    fn crate_of(modules: usize) -> Vec<TrackedFile> {
        (0..modules).map(|number| file(&format!("crates/a/src/m{number}.rs"), "")).collect()
    }

    #[test]
    fn limits_the_number_of_top_level_modules() {
        let mut files = crate_of(12);
        files.push(file("crates/a/src/lib.rs", ""));
        files.push(file("crates/a/src/m0/part.rs", ""));
        files.push(file("crates/a/src/bin/program/main.rs", ""));
        files.push(file("crates/a/src/notes.md", ""));
        files.push(file("crates/a/tests/more.rs", ""));
        assert_eq!(size_findings(&files, &[]), [""; 0]);
        files.push(file("crates/a/src/tests/case.rs", ""));
        assert_eq!(size_findings(&files, &[]).len(), 1);
    }

    #[test]
    fn exceptions_of_size_are_exact() {
        assert_eq!(size_findings(&crate_of(14), &[("crates/a", 14, "")]), [""; 0]);
        assert_eq!(size_findings(&crate_of(15), &[("crates/a", 14, "")]).len(), 1);
        assert_eq!(size_findings(&crate_of(11), &[("crates/a", 14, "")]).len(), 1);
    }

    #[test]
    fn finds_cycles_outside_of_tests() {
        let mut files = vec![
            file("tests/a/src/b.rs", "use crate::c::C;"),
            file("tests/a/src/c.rs", "#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}"),
            file("tests/a/src/tests.rs", "use crate::b::B;"),
        ];
        assert_eq!(cycle_findings(&files, &[]), [""; 0]);
        files.push(file("tests/a/src/c/part.rs", "use crate::b::B;"));
        assert_eq!(cycle_findings(&files, &[]).len(), 1);
        assert_eq!(cycle_findings(&files, &[("tests/a", &["b", "c"], "")]), [""; 0]);
    }

    #[test]
    fn exceptions_of_cycles_are_exact() {
        let files =
            [file("crates/a/src/b.rs", "use crate::c::C;"), file("crates/a/src/c.rs", "use crate::b::B;")];
        assert_eq!(cycle_findings(&files, &[("crates/a", &["b", "c", "d"], "")]).len(), 2);
        assert_eq!(cycle_findings(&[], &[("crates/a", &["b", "c"], "")]).len(), 1);
    }
}
