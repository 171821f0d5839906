//! The folder of the databases.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

/// The folder of the database files.
#[derive(Clone, Debug)]
pub struct DatabaseFolder {
    folder: PathBuf,
    /// Keeps a temporary folder until its last user is dropped.
    _fresh: Option<Arc<TempDir>>,
}

impl DatabaseFolder {
    /// Uses this folder, which is created if necessary and kept.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), _fresh: None }
    }

    /// Creates a temporary folder with new databases. It is removed when its last user is dropped.
    pub fn fresh() -> io::Result<Self> {
        let fresh = tempfile::tempdir()?;
        Ok(Self { folder: fresh.path().into(), _fresh: Some(Arc::new(fresh)) })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Default for DatabaseFolder {
    /// A folder in the system's folder for temporary files, kept from run to run.
    fn default() -> Self {
        Self::folder(std::env::temp_dir().join("orfa-marketplace"))
    }
}
