//! Cycles among the top-level modules of each crate, by `crate::` and `super::` paths in code.
//!
//! `foo.rs` and the files in `foo/` are one module. `lib.rs`, `main.rs` and `bin/` use all modules and belong
//! to none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use crate::vocabulary::{RaisedAt, compile_pattern, line_at};

/// The file stems of a crate's roots.
const CRATE_ROOTS: [&str; 3] = ["lib", "main", "bin"];

static CRATE_PATH: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\bcrate::(\{[^;]*\}|\w+)"));
static GROUP_ITEM: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"[{,]\s*(\w+)"));
static SUPER_PATH: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\b((?:super::)+)(\w+)"));

/// Uses between modules: the using and the used module, and each `path:line`.
type ModuleUses<'a> = BTreeMap<(&'a str, &'a str), Vec<String>>;

/// A strongly connected group of modules.
pub(crate) struct ModuleCycle {
    /// The folder of the crate.
    pub(crate) crate_folder: String,
    pub(crate) modules: Vec<String>,
    /// One location for each pair of modules in the group, the pairs with fewest uses first: those are the
    /// cheapest to remove.
    pub(crate) uses: Vec<RaisedAt>,
}

struct ModuleFile<'a> {
    path: &'a str,
    /// The path below `src/`.
    inner: &'a str,
    code: &'a str,
}

/// Finds the cycles in the crates of these files, given as path and code.
pub(crate) fn cycles(files: &[(&str, String)]) -> Vec<ModuleCycle> {
    let mut crates: BTreeMap<&str, Vec<ModuleFile>> = BTreeMap::new();
    for (path, code) in files {
        if let Some((folder, inner)) = path.split_once("/src/") {
            crates.entry(folder).or_default().push(ModuleFile { path, inner, code });
        }
    }
    crates.into_iter().flat_map(|(folder, files)| crate_cycles(folder, &files)).collect()
}

fn crate_cycles(folder: &str, files: &[ModuleFile]) -> Vec<ModuleCycle> {
    let modules: BTreeSet<&str> = files.iter().filter_map(|file| top_module(file.inner)).collect();
    let mut uses = ModuleUses::new();
    for file in files {
        let Some(own) = top_module(file.inner) else { continue };
        for (offset, used) in file.used_modules() {
            if used != own && modules.contains(used) {
                uses.entry((own, used)).or_default().push(line_at(file.path, file.code, offset));
            }
        }
    }
    let cycle = |modules: BTreeSet<&str>| ModuleCycle {
        crate_folder: folder.to_owned(),
        uses: uses_inside(&modules, &uses),
        modules: modules.into_iter().map(str::to_owned).collect(),
    };
    strongly_connected(&modules, &uses).into_iter().map(cycle).collect()
}

/// Returns the top-level module of a file, given by its path below `src/`. The roots of a crate have none.
pub(super) fn top_module(inner: &str) -> Option<&str> {
    let name = inner.split_once('/').map_or(inner, |(folder, _)| folder);
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!CRATE_ROOTS.contains(&name)).then_some(name)
}

impl<'a> ModuleFile<'a> {
    /// The number of modules from this file's module up to the root of the crate.
    fn depth(&self) -> usize {
        self.inner.matches('/').count() + usize::from(!self.inner.ends_with("mod.rs"))
    }

    /// The names that follow the root of the crate in paths, with their offsets. Not all are modules.
    fn used_modules(&self) -> Vec<(usize, &'a str)> {
        let mut used = Vec::new();
        for path in CRATE_PATH.captures_iter(self.code).filter_map(|captures| captures.get(1)) {
            if path.as_str().starts_with('{') {
                let items = GROUP_ITEM.captures_iter(path.as_str()).filter_map(|captures| captures.get(1));
                used.extend(items.map(|item| (path.start() + item.start(), item.as_str())));
            } else {
                used.push((path.start(), path.as_str()));
            }
        }
        for captures in SUPER_PATH.captures_iter(self.code) {
            let (path, [supers, item]) = captures.extract();
            if supers.len() == self.depth() * "super::".len() {
                let offset = captures.get_match().start() + path.len() - item.len();
                used.push((offset, item));
            }
        }
        used
    }
}

/// Returns the groups of two or more modules that reach each other.
fn strongly_connected<'a>(modules: &BTreeSet<&'a str>, uses: &ModuleUses<'a>) -> Vec<BTreeSet<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&'a str>> =
        modules.iter().map(|&module| (module, reachable(module, uses))).collect();
    let mut groups: Vec<BTreeSet<&str>> = Vec::new();
    for module in modules {
        if groups.iter().any(|group| group.contains(module)) {
            continue;
        }
        let reaches_back = |other: &&&str| reach[**other].contains(module);
        let group: BTreeSet<&str> = reach[module].iter().filter(reaches_back).copied().collect();
        if group.len() > 1 {
            groups.push(group);
        }
    }
    groups
}

/// Returns the modules that a module uses directly or indirectly.
fn reachable<'a>(module: &'a str, uses: &ModuleUses<'a>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![module];
    while let Some(module) = pending.pop() {
        for (_, used) in uses.keys().filter(|(user, _)| *user == module) {
            if reached.insert(*used) {
                pending.push(*used);
            }
        }
    }
    reached
}

fn uses_inside(modules: &BTreeSet<&str>, uses: &ModuleUses) -> Vec<RaisedAt> {
    let pairs = uses.iter().filter(|((user, used), _)| modules.contains(user) && modules.contains(used));
    let mut inside: Vec<_> = pairs.collect();
    inside.sort_by_key(|(_, lines)| lines.len());
    let location = |((user, used), lines): (&(&str, &str), &Vec<String>)| {
        let text = format!("`{user}` uses `{used}`, {} in all", lines.len());
        Some(RaisedAt { at: lines.first()?.clone(), text })
    };
    inside.into_iter().filter_map(location).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used<'a>(inner: &'a str, code: &'a str) -> Vec<&'a str> {
        ModuleFile { path: inner, inner, code }.used_modules().into_iter().map(|(_, name)| name).collect()
    }

    fn groups(files: &[(&'static str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<(&str, String)> = files.iter().map(|(path, code)| (*path, (*code).into())).collect();
        cycles(&files).into_iter().map(|cycle| cycle.modules).collect()
    }

    #[test]
    fn reads_paths_from_the_root_of_the_crate() {
        assert_eq!(used("a.rs", "use crate::b::C;\nfn f() { crate::d::g() }"), ["b", "d"]);
        assert_eq!(used("a.rs", "use crate::{b::{C, D}, e};"), ["b", "C", "D", "e"]);
        assert_eq!(used("a.rs", "use crate::{\n    b,\n    c,\n};"), ["b", "c"]);
    }

    #[test]
    fn reads_super_paths_that_reach_the_root_of_the_crate() {
        assert_eq!(used("a.rs", "use super::b::C;"), ["b"]);
        assert_eq!(used("a/b.rs", "use super::c;\nuse super::super::d;"), ["d"]);
        assert_eq!(used("a/mod.rs", "use super::b;"), ["b"]);
    }

    #[test]
    fn files_of_a_folder_belong_to_its_module() {
        assert_eq!(top_module("a.rs"), Some("a"));
        assert_eq!(top_module("a/b/c.rs"), Some("a"));
        assert_eq!(top_module("a/mod.rs"), Some("a"));
        assert_eq!(top_module("lib.rs"), None);
        assert_eq!(top_module("bin/a/b.rs"), None);
    }

    #[test]
    fn finds_strongly_connected_modules() {
        let files = [
            ("crates/x/src/lib.rs", "use crate::a::A;"),
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b/part.rs", "use crate::c::C;"),
            ("crates/x/src/c.rs", "use super::a::A;\nuse crate::d::D;"),
            ("crates/x/src/d.rs", "use crate::e::E;"),
            ("crates/x/src/e.rs", "use crate::d::D;"),
            ("crates/x/src/f.rs", "use crate::a::A;"),
        ];
        assert_eq!(groups(&files), [vec!["a", "b", "c"], vec!["d", "e"]]);
    }

    #[test]
    fn crates_and_roots_form_no_cycles() {
        let two_crates = [("crates/x/src/a.rs", "crate::b"), ("crates/y/src/b.rs", "crate::a")];
        assert_eq!(groups(&two_crates).len(), 0);
        let root = [("crates/x/src/a.rs", "crate::lib"), ("crates/x/src/lib.rs", "crate::a")];
        assert_eq!(groups(&root).len(), 0);
        let one_way = [("crates/x/src/a.rs", "crate::a"), ("crates/x/src/b.rs", "crate::a")];
        assert_eq!(groups(&one_way).len(), 0);
    }

    #[test]
    fn lists_the_pairs_with_fewest_uses_first() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B;\nuse crate::b::C;".to_owned()),
            ("crates/x/src/b.rs", "\nuse crate::a::A;".to_owned()),
        ];
        let cycles = cycles(&files);
        let at: Vec<&str> = cycles[0].uses.iter().map(|location| location.at.as_str()).collect();
        assert_eq!(at, ["crates/x/src/b.rs:2", "crates/x/src/a.rs:1"]);
    }
}
