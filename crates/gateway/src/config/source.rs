//! The positions of a config's fields in its file.
//!
//! Checks identify a field by its JSON Pointer. A [`FieldPositions`] translates that into file, line and
//! column, and into a readable name: `/routes/0/path` is `routes[0].path`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use diagnostics::{Diagnostic, DiagnosticLocation, SourceDocument, SourcePosition};
use json::pointer::append_step;
use serde_json::Value;

/// The positions of a config's fields.
#[derive(Clone, Debug, Default)]
pub struct FieldPositions {
    file: String,
    folder: PathBuf,
    positions: HashMap<String, FieldPosition>,
    hidden_pointers: HashSet<String>,
    digest: String,
    files: Vec<PathBuf>,
    warnings: Vec<Diagnostic>,
}

/// Line and column of a key and of its value, both from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPosition {
    pub(crate) key: (usize, usize),
    pub(crate) value: (usize, usize),
}

/// Selects the key's or the value's position.
#[derive(Clone, Copy)]
pub(crate) enum PositionOf {
    Key,
    Value,
}

impl FieldPositions {
    pub(crate) fn new(file: &Path) -> Self {
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let files = vec![file.to_owned()];
        Self { file: file.display().to_string(), folder, files, ..Self::default() }
    }

    /// The folder that relative paths in the config start from.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The SHA-256 of the file, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Every file that was read for the config, itself first.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The parts of the config that work but should be changed, such as old keys, in the order of the file.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Adds a warning, once.
    pub(crate) fn warn(&mut self, warning: Diagnostic) {
        let warning = warning.as_warning();
        // Several routes may have the same declaration.
        if self.warnings.contains(&warning) {
            return;
        }
        // Within one file the warnings are sorted; those of other files follow.
        let is_before = |other: &Diagnostic| {
            let (location, other) = (&warning.location, &other.location);
            other.file() != location.file() || other.line_and_column() <= location.line_and_column()
        };
        let index = self.warnings.iter().rposition(is_before).map_or(0, |index| index + 1);
        self.warnings.insert(index, warning);
    }

    /// Registers the text of the config file.
    pub(crate) fn note_text(&mut self, text: &str) {
        use sha2::{Digest, Sha256};
        self.digest = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    }

    /// Registers a file that the config names; a relative path starts in the config's folder.
    pub(crate) fn note_file(&mut self, file: impl AsRef<Path>) {
        self.note_path(self.folder.join(file));
    }

    /// Registers a file or folder by its path, which already includes the config's folder.
    pub(crate) fn note_path(&mut self, path: PathBuf) {
        // The parent of a bare file name is the empty path.
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        if !self.files.contains(&path) {
            self.files.push(path);
        }
    }

    pub(crate) fn insert_position(&mut self, pointer: &str, position: FieldPosition) {
        self.positions.insert(pointer.to_owned(), position);
    }

    /// Registers the new name of a field with this value, for the field and everything below it.
    pub(crate) fn rename(&mut self, old: &str, new: &str, value: &Value) {
        if let Some(position) = self.positions.remove(old) {
            self.insert_position(new, position);
        }
        if self.hidden_pointers.remove(old) {
            self.hide(new);
        }
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.rename(&format!("{old}/{index}"), &format!("{new}/{index}"), item);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.rename(&append_step(old, name), &append_step(new, name), member);
                }
            }
            _ => {}
        }
    }

    /// Marks a value from the environment or a file, which must never be printed.
    pub(crate) fn hide(&mut self, pointer: &str) {
        self.hidden_pointers.insert(pointer.to_owned());
    }

    pub(crate) fn is_hidden(&self, pointer: &str) -> bool {
        self.hidden_pointers.contains(pointer)
    }

    /// Creates a mistake in the field at this JSON Pointer.
    pub fn mistake(&self, pointer: &str, message: impl Into<String>, hint: Option<String>) -> Diagnostic {
        Diagnostic::new(self.location(pointer, PositionOf::Value), message, hint.unwrap_or_default())
    }

    /// Creates a mistake in the key of a field.
    pub(crate) fn mistake_in_key(&self, pointer: &str, message: String, hint: Option<String>) -> Diagnostic {
        Diagnostic::new(self.location(pointer, PositionOf::Key), message, hint.unwrap_or_default())
    }

    /// Creates a mistake at a position reported by a parser.
    pub(crate) fn mistake_at_position(
        &self,
        (line, column): (usize, usize),
        pointer: &str,
        message: String,
    ) -> Diagnostic {
        let (file, field) = (self.file.clone(), field_path(pointer));
        Diagnostic::new(SourcePosition { file, line, column, field }, message, "")
    }

    /// Resolves the locations of diagnostics about the part of this document at `base`, and of those about
    /// services.
    pub(crate) fn resolve(&self, base: &str, found: impl IntoIterator<Item = Diagnostic>) -> Vec<Diagnostic> {
        let resolve = |diagnostic: Diagnostic| {
            let DiagnosticLocation::Pointer { document, pointer } = &diagnostic.location else {
                return diagnostic;
            };
            let base = match document {
                SourceDocument::Checked => base,
                SourceDocument::Service(name) => &append_step("/services", name),
                SourceDocument::Links | SourceDocument::Description(_) => return diagnostic,
            };
            let location = self.location(&format!("{base}{pointer}"), PositionOf::Value);
            Diagnostic { location, ..diagnostic }
        };
        found.into_iter().map(resolve).collect()
    }

    fn location(&self, pointer: &str, at: PositionOf) -> DiagnosticLocation {
        let (line, column) = self.position(pointer, at);
        SourcePosition { file: self.file.clone(), line, column, field: field_path(pointer) }.into()
    }

    /// Returns the position of the field, or of the nearest enclosing field.
    fn position(&self, pointer: &str, at: PositionOf) -> (usize, usize) {
        let mut near = pointer;
        loop {
            if let Some(field_position) = self.positions.get(near) {
                return if matches!(at, PositionOf::Key) { field_position.key } else { field_position.value };
            }
            match near.rfind('/') {
                Some(end) => near = &near[..end],
                None => return (0, 0),
            }
        }
    }
}

/// Formats `/routes/0/query` as `routes[0].query`.
pub(super) fn field_path(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !field.is_empty() {
            field.push_str(&format!("[{part}]"));
        } else {
            let dot = if field.is_empty() { "" } else { "." };
            field.push_str(&format!("{dot}{}", json::pointer::unescape_step(part)));
        }
    }
    field
}
