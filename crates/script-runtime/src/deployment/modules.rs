//! The modules that a script imports by path, directly or transitively. An engine loads each of them only
//! once, so a change of one needs new workers.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use script::ScriptProgram;

/// The maximum size of a module; a larger one counts as unreadable.
const MAX_MODULE_SIZE: u64 = 1 << 20;
/// The suffixes that `require` tries for a path without an extension.
const MODULE_SUFFIXES: [&str; 4] = [".js", ".json", ".cjs", "/index.js"];

/// A module: its path, and its text if it is readable.
pub type ScriptModule = (PathBuf, Option<String>);

/// Returns the modules that a program in this folder imports, each once. Packages are not included, since
/// their location depends on the engine.
#[must_use]
pub fn imported_modules(program: &ScriptProgram, folder: &Path) -> Vec<ScriptModule> {
    let mut modules = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting: Vec<PathBuf> = resolve_imports(&program.imports, folder).collect();
    while let Some(file) = waiting.pop() {
        // An engine identifies a module by its canonical path.
        let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        if !seen.insert(real.clone()) {
            continue;
        }
        let text = read_module(&file);
        let folder = real.parent().unwrap_or(Path::new(""));
        let imports = text.as_deref().map(|text| script::module_specifiers(text, &file)).unwrap_or_default();
        waiting.extend(resolve_imports(&imports, folder));
        modules.push((file, text));
    }
    modules.sort();
    modules
}

/// Resolves those imports that are paths.
fn resolve_imports(imports: &[String], folder: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = imports.iter().filter(|import| import.starts_with(['.', '/']));
    paths.map(|import| {
        let file = folder.join(import);
        if file.is_file() {
            return file;
        }
        let ended = MODULE_SUFFIXES.iter().map(|ending| folder.join(format!("{import}{ending}")));
        ended.into_iter().find(|file| file.is_file()).unwrap_or(file)
    })
}

#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "at most `LARGEST` + 1 bytes"))]
fn read_module(file: &Path) -> Option<String> {
    let mut text = String::new();
    let size = File::open(file).ok()?.take(MAX_MODULE_SIZE + 1).read_to_string(&mut text).ok()?;
    (size as u64 <= MAX_MODULE_SIZE).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_direct_and_transitive_modules_once() {
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
        let program =
            ScriptProgram { imports: vec!["./a.mjs".into(), "fs".into()], ..ScriptProgram::default() };
        let modules = imported_modules(&program, folder.path());
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
