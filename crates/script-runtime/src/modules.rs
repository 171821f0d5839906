//! The modules that a script stands on: those that it imports by their paths, and what these import in their turn. An
//! engine reads each of them only once, so that a change needs workers of its own.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use script::Program;

/// As much is read of a module; there is none where it is larger.
const LARGEST: u64 = 1 << 20;
/// What `require` puts behind a path without an ending.
const ENDINGS: [&str; 4] = [".js", ".json", ".cjs", "/index.js"];

/// A module: where it is, and its text if it can be read.
pub type Module = (PathBuf, Option<String>);

/// The modules of a program in this folder, each once. Packages are not among them: nobody knows before where an engine
/// finds them.
#[must_use]
pub fn modules(program: &Program, folder: &Path) -> Vec<Module> {
    let mut modules = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting: Vec<PathBuf> = found(&program.imports, folder).collect();
    while let Some(file) = waiting.pop() {
        // An engine knows a module by where it really is.
        let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        if !seen.insert(real.clone()) {
            continue;
        }
        let text = read(&file);
        let folder = real.parent().unwrap_or(Path::new(""));
        let imports = text.as_deref().map(|text| script::modules(text, &file)).unwrap_or_default();
        waiting.extend(found(&imports, folder));
        modules.push((file, text));
    }
    modules.sort();
    modules
}

/// Where those of the imports are that are paths.
fn found(imports: &[String], folder: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = imports.iter().filter(|import| import.starts_with(['.', '/']));
    paths.map(|import| {
        let file = folder.join(import);
        if file.is_file() {
            return file;
        }
        let ended = ENDINGS.iter().map(|ending| folder.join(format!("{import}{ending}")));
        ended.into_iter().find(|file| file.is_file()).unwrap_or(file)
    })
}

fn read(file: &Path) -> Option<String> {
    let mut text = String::new();
    let size = File::open(file).ok()?.take(LARGEST + 1).read_to_string(&mut text).ok()?;
    (size as u64 <= LARGEST).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_s_modules_are_those_that_its_modules_import_too_each_once() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("lib")).expect("a folder");
        for (name, text) in [
            ("a.mjs", "import './lib/b.mjs'; import 'package'; import './a.mjs'"),
            ("lib/b.mjs", "export * from '../a.mjs'; import './c.cjs'; import '../lib/b.mjs'"),
            ("lib/c.cjs", "require('./d'); require('./missing')"),
            ("lib/d.json", "{}"),
        ] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let program = Program { imports: vec!["./a.mjs".into(), "fs".into()], ..Program::default() };
        let modules = modules(&program, folder.path());
        let found: Vec<(&str, bool)> = modules
            .iter()
            .map(|(file, text)| {
                (file.file_name().and_then(|name| name.to_str()).unwrap_or_default(), text.is_some())
            })
            .collect();
        let expected =
            [("a.mjs", true), ("b.mjs", true), ("c.cjs", true), ("d.json", true), ("missing", false)];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(expected.iter().all(|module| found.contains(module)), "{found:?}");
    }
}
