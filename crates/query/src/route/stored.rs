//! Stored programs: deployed by the operator, called by name below the route's path.
//!
//! `stored` lists files, with `*` for any name. A program's name is its file's name without the extension;
//! the first file with a name is the default version. Every listed file can also be called as `NAME@HASH`,
//! with the first digits (at least 16) of its SHA-256, so that released clients keep using the version that
//! they were built with, as long as the operator lists it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diagnostics::Diagnostic;
use sha2::{Digest, Sha256};

use super::QueryRouteContext;
use crate::problem::{QueryError, short};
use crate::program::{ProgramHash, ProgramLanguage, to_hex};
use crate::runtime::CachedProgram;

/// The minimum number of hash digits that identify a version.
const MIN_HASH_DIGITS: usize = 16;

/// A version of a stored program, by its hash. `None` if the program is blocked.
type StoredVersion = (ProgramHash, Option<Arc<CachedProgram>>);

/// The stored programs of a route, with the versions of each.
#[derive(Default)]
pub(crate) struct StoredPrograms {
    versions_by_name: HashMap<String, Vec<StoredVersion>>,
}

impl StoredPrograms {
    /// Reads, checks and compiles the files of these patterns, relative to the route's folder, or returns all
    /// mistakes. The pointers are relative to `stored`.
    ///
    /// # Errors
    /// Patterns that match no file, files that can't be read, and invalid programs.
    pub(crate) fn new(
        patterns: &[String],
        context: &QueryRouteContext<'_>,
        limit: u64,
    ) -> Result<Self, Vec<Diagnostic>> {
        let (mut stored, mut problems) = (Self::default(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(error) = glob::Pattern::new(pattern) {
                problems.push(config_problem(
                    index,
                    format!("`{pattern}` is not a pattern: {}", error.msg),
                    "",
                ));
                continue;
            }
            let files = matching_files(context.folder, pattern);
            if files.is_empty() {
                problems.push(config_problem(index, format!("no file matches `{pattern}`"), FILE_HINT));
            }
            for file in files {
                if let Err((message, hint)) = stored.add_file(&file, context, limit) {
                    problems.push(config_problem(index, format!("{}: {message}", file.display()), &hint));
                }
            }
        }
        if problems.is_empty() { Ok(stored) } else { Err(problems) }
    }

    fn add_file(
        &mut self,
        file: &Path,
        context: &QueryRouteContext<'_>,
        limit: u64,
    ) -> Result<(), (String, String)> {
        let (name, language) = parse_file_name(file)
            .ok_or_else(|| ("this is not a program".to_owned(), FILE_HINT.to_owned()))?;
        let bytes = std::fs::read(file).map_err(|error| (error.to_string(), String::new()))?;
        if bytes.len() as u64 > limit {
            return Err((format!("the program has {} bytes, more than {limit}", bytes.len()), String::new()));
        }
        let hash: ProgramHash = Sha256::digest(&bytes).into();
        let is_open = !context.blocked.contains(&hash);
        let program = is_open.then(|| context.runtime.compile_stored(language, &bytes)).transpose();
        let program =
            program.map_err(|error| (format_with_position(&error), services::ToProblem::hint(&error)))?;
        let versions = self.versions_by_name.entry(name).or_default();
        if versions.iter().all(|(known, _)| *known != hash) {
            versions.push((hash, program));
        }
        Ok(())
    }

    /// Whether the route has no stored programs.
    pub(crate) fn is_empty(&self) -> bool {
        self.versions_by_name.is_empty()
    }

    /// Returns every version of every program: its name and hash.
    pub(crate) fn all_versions(&self) -> impl Iterator<Item = (&str, &ProgramHash)> {
        let mut names: Vec<_> = self.versions_by_name.iter().collect();
        names.sort_by_key(|(name, _)| *name);
        names.into_iter().flat_map(|(name, versions)| versions.iter().map(|(hash, _)| (&**name, hash)))
    }

    /// Whether a name, with or without a hash, refers to a program, blocked or not.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find_version(name).is_some()
    }

    /// Returns the program that a name, with or without a hash, refers to.
    ///
    /// # Errors
    /// If there is none, or it is blocked.
    pub(crate) fn find_program(&self, name: &str) -> Result<&Arc<CachedProgram>, QueryError> {
        let version = self.find_version(name).ok_or_else(|| QueryError::StoredUnknown(short(name)))?;
        version.1.as_ref().ok_or(QueryError::ProgramBlocked)
    }

    fn find_version(&self, name: &str) -> Option<&(ProgramHash, Option<Arc<CachedProgram>>)> {
        let Some((name, digits)) = name.split_once('@') else {
            return self.versions_by_name.get(name)?.first();
        };
        let versions = self.versions_by_name.get(name).filter(|_| digits.len() >= MIN_HASH_DIGITS)?;
        versions.iter().find(|(hash, _)| to_hex(hash).starts_with(digits))
    }
}

const FILE_HINT: &str = "programs are files that end in .wasm, .js, .mjs, .ts or .mts, with letters, digits, `-`, `_` and \
                    `.` in their names";

/// Returns the files that match a pattern, sorted by name.
#[must_use]
pub fn matching_files(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let is_pattern = pattern.contains(['*', '?', '[']);
    if !is_pattern {
        return Some(folder.join(pattern)).filter(|file| file.is_file()).into_iter().collect();
    }
    // The folder's own name is not a pattern. If it is empty, the pattern is relative to the working
    // directory and not to the root.
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    let whole = Path::new(&folder).join(pattern.strip_prefix("./").unwrap_or(pattern));
    let found = glob::glob(&whole.to_string_lossy());
    let files = found.into_iter().flatten().flatten();
    files.filter(|file| file.is_file() && parse_file_name(file).is_some()).collect()
}

/// Returns the name and language of a program file, or `None` for other files.
fn parse_file_name(file: &Path) -> Option<(String, ProgramLanguage)> {
    let name = file.file_stem()?.to_str()?;
    let language = ProgramLanguage::from_extension(file.extension()?.to_str()?)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (!name.ends_with(".d") && name.bytes().all(is_plain)).then(|| (name.to_owned(), language))
}

/// Formats an error with its position in the program.
fn format_with_position(error: &QueryError) -> String {
    let members = services::ToProblem::members(error);
    match (members.get("line"), members.get("column")) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: {error}"),
        _ => error.to_string(),
    }
}

fn config_problem(index: usize, message: String, hint: &str) -> Diagnostic {
    Diagnostic::new(format!("/{index}"), message, hint)
}
