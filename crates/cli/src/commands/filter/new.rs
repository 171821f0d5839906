//! The templates of filter projects in `new/`. Each builds as it is, with the name `my-filter`.
//!
//! They are embedded, since `orfa` is a single file; `write` inserts the filter's name.

use std::fs;
use std::path::Path;

use crate::output::exit::CliError;

/// The languages of the templates.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum TemplateLanguage {
    Go,
    Rust,
    #[value(name = "assemblyscript")]
    AssemblyScript,
}

/// A file's path in the project, and its text.
type TemplateFile = (&'static str, &'static str);

/// The name in the templates; Rust's file names use `_` instead of `-`.
const TEMPLATE_NAME: &str = "my-filter";

const GO: &[TemplateFile] = &[
    ("README.md", include_str!("new/go/README.md")),
    ("go.mod", include_str!("new/go/go.mod")),
    ("go.sum", include_str!("new/go/go.sum")),
    ("main.go", include_str!("new/go/main.go")),
];
const RUST: &[TemplateFile] = &[
    ("README.md", include_str!("new/rust/README.md")),
    ("Cargo.toml", include_str!("new/rust/Cargo.toml")),
    ("src/lib.rs", include_str!("new/rust/src/lib.rs")),
];
const ASSEMBLYSCRIPT: &[TemplateFile] = &[
    ("README.md", include_str!("new/assemblyscript/README.md")),
    ("package.json", include_str!("new/assemblyscript/package.json")),
    ("assembly/index.ts", include_str!("new/assemblyscript/assembly/index.ts")),
];

impl TemplateLanguage {
    fn files(self) -> &'static [TemplateFile] {
        match self {
            Self::Go => GO,
            Self::Rust => RUST,
            Self::AssemblyScript => ASSEMBLYSCRIPT,
        }
    }
}

/// Writes a project into a folder that must not exist yet.
pub(crate) fn write_project(folder: &Path, name: &str, language: TemplateLanguage) -> Result<(), CliError> {
    if !is_valid_name(name) {
        let hint = "use small letters, digits and `-`, a letter first: valid names in Go, Rust and npm";
        return Err(CliError::usage("bad-filter-name", format!("`{name}` can't be a filter's name"), hint));
    }
    if folder.exists() {
        let message = format!("{} exists already", folder.display());
        return Err(CliError::usage("folder-exists", message, "use another name, or `--in FOLDER`"));
    }
    for (path, text) in language.files() {
        let file = folder.join(path);
        let text = text
            .replace(TEMPLATE_NAME, name)
            .replace(&TEMPLATE_NAME.replace('-', "_"), &name.replace('-', "_"));
        let written = file.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&file, text));
        written.map_err(|error| {
            let message = format!("{} can't be written: {error}", file.display());
            CliError::failed("filter-not-written", message, "`--in FOLDER` writes it elsewhere")
        })?;
    }
    Ok(())
}

fn is_valid_name(name: &str) -> bool {
    let is_fine = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.chars().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TemplateLanguage; 3] =
        [TemplateLanguage::Go, TemplateLanguage::Rust, TemplateLanguage::AssemblyScript];

    #[test]
    fn project_uses_its_name_everywhere() {
        for language in ALL {
            let folder = tempfile::tempdir().expect("a folder");
            let project = folder.path().join("add-header");
            write_project(&project, "add-header", language).expect("written");
            for (path, _) in language.files() {
                let text = fs::read_to_string(project.join(path)).expect("a file");
                assert!(!text.contains(TEMPLATE_NAME) && !text.contains("my_filter"), "{path}");
            }
            let readme = fs::read_to_string(project.join("README.md")).expect("a file");
            assert!(readme.contains("wasm: add-header.wasm"), "{readme}");
        }
    }

    /// A file that is not embedded would be missing from every project.
    #[test]
    fn every_file_of_a_template_is_embedded() {
        for (folder, language) in [("go", ALL[0]), ("rust", ALL[1]), ("assemblyscript", ALL[2])] {
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/filter/new").join(folder);
            for entry in fs::read_dir(there).expect("a folder") {
                let name = entry.expect("an entry").file_name().into_string().expect("a name");
                let made = ["node_modules", "target", "Cargo.lock", "package-lock.json"].contains(&&*name);
                let embedded = language.files().iter().any(|(path, _)| path.split('/').next() == Some(&name));
                assert!(made || name.ends_with(".wasm") || embedded, "{folder}/{name}");
            }
        }
    }

    #[test]
    fn never_overwrites_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let error =
            write_project(folder.path(), "add-header", TemplateLanguage::Go).expect_err("it is there");
        assert_eq!(error.code, "folder-exists");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn accepts_only_names_valid_in_all_languages() {
        assert!(is_valid_name("add-header") && is_valid_name("a1"));
        for name in ["", "1a", "A", "a_b", "../a", "a/b", "a b"] {
            assert!(!is_valid_name(name), "{name}");
        }
    }
}
