//! Where in a file each field of a config stands.
//!
//! Everything that looks for mistakes knows a field by its JSON Pointer; a [`Source`] turns that into
//! file, line and column, and into the name that people read: `/routes/0/path` is `routes[0].path`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::mistake::Mistake;

/// The positions of a config's fields.
#[derive(Clone, Debug, Default)]
pub struct Source {
    file: String,
    folder: PathBuf,
    places: HashMap<String, Place>,
    secret: HashSet<String>,
    digest: String,
    files: Vec<PathBuf>,
}

/// Line and column of a key and of its value, both from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) key: (usize, usize),
    pub(crate) value: (usize, usize),
}

/// Which of a field's two places is meant.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Key,
    Value,
}

impl Source {
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

    /// Every file that was read to make the config, itself first.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Notes the text that all this is the source of.
    pub(crate) fn note_text(&mut self, text: &str) {
        use sha2::{Digest, Sha256};
        self.digest = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    }

    /// Notes a file that the config names; a relative path starts in the config's folder.
    pub(crate) fn note_file(&mut self, file: impl AsRef<Path>) {
        self.note_path(self.folder.join(file));
    }

    /// Notes a file or folder by its path, which begins in the config's folder already.
    pub(crate) fn note_path(&mut self, path: PathBuf) {
        // The folder of a file that is named without one.
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        if !self.files.contains(&path) {
            self.files.push(path);
        }
    }

    pub(crate) fn put(&mut self, pointer: &str, place: Place) {
        self.places.insert(pointer.to_owned(), place);
    }

    /// Notes that a value came from the environment or a file: it is never shown.
    pub(crate) fn hide(&mut self, pointer: &str) {
        self.secret.insert(pointer.to_owned());
    }

    pub(crate) fn is_hidden(&self, pointer: &str) -> bool {
        self.secret.contains(pointer)
    }

    /// A mistake in the field at this JSON Pointer.
    #[must_use]
    pub fn mistake(&self, pointer: &str, message: impl Into<String>, hint: Option<String>) -> Mistake {
        self.mistake_at(pointer, At::Value, message.into(), hint)
    }

    /// A mistake in the name of a field.
    pub(crate) fn mistake_in_key(&self, pointer: &str, message: String, hint: Option<String>) -> Mistake {
        self.mistake_at(pointer, At::Key, message, hint)
    }

    /// A mistake at a place of its own: what a parser reports.
    pub(crate) fn mistake_on(
        &self,
        (line, column): (usize, usize),
        pointer: &str,
        message: String,
    ) -> Mistake {
        Mistake { file: self.file.clone(), line, column, field: field(pointer), message, hint: None }
    }

    fn mistake_at(&self, pointer: &str, at: At, message: String, hint: Option<String>) -> Mistake {
        let (line, column) = self.position(pointer, at);
        Mistake { file: self.file.clone(), line, column, field: field(pointer), message, hint }
    }

    /// The place of the field, or of the nearest field around it.
    fn position(&self, pointer: &str, at: At) -> (usize, usize) {
        let mut near = pointer;
        loop {
            if let Some(place) = self.places.get(near) {
                return if matches!(at, At::Key) { place.key } else { place.value };
            }
            match near.rfind('/') {
                Some(end) => near = &near[..end],
                None => return (0, 0),
            }
        }
    }
}

/// `/routes/0/query` as people write it: `routes[0].query`.
pub(super) fn field(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !field.is_empty() {
            field.push_str(&format!("[{part}]"));
        } else {
            let dot = if field.is_empty() { "" } else { "." };
            field.push_str(&format!("{dot}{}", json::pointer::unescaped(part)));
        }
    }
    field
}
