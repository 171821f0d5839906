//! Where the databases lie.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

/// The folder of the database files.
#[derive(Clone, Debug)]
pub struct Data {
    folder: PathBuf,
    /// Keeps a fresh folder alive as long as anyone uses it.
    _fresh: Option<Arc<TempDir>>,
}

impl Data {
    /// A folder of your own; it is created if it is absent, and what is written stays there.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), _fresh: None }
    }

    /// A new folder with freshly seeded databases, removed when the last user has gone.
    pub fn fresh() -> io::Result<Self> {
        let fresh = tempfile::tempdir()?;
        Ok(Self { folder: fresh.path().into(), _fresh: Some(Arc::new(fresh)) })
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Default for Data {
    /// A folder under the system's place for temporary files, kept from run to run.
    fn default() -> Self {
        Self::folder(std::env::temp_dir().join("orfa-marketplace"))
    }
}
