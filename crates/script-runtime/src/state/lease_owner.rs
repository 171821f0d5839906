//! The identity of this gateway among those that share the same state.
//!
//! A gateway holds leases under the name of a file that it keeps locked as long as it lives. The next gateway
//! therefore need not wait for the leases of a killed one: the system has released its lock. This also works
//! between containers, which cannot see each other's processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// This gateway's locked file.
#[derive(Debug)]
pub(crate) struct LeaseOwner {
    name: Arc<str>,
    folder: PathBuf,
    _lock_file: File,
}

/// The suffix of the files' names.
const ENDING: &str = ".gateway";

impl LeaseOwner {
    pub(crate) fn new(folder: &Path) -> std::io::Result<Self> {
        remove_abandoned(folder)?;
        let name = format!("{:016x}{ENDING}", fastrand::u64(..));
        // Renamed after locking, so that no other gateway considers it abandoned.
        let unnamed = folder.join(format!("{name}.new"));
        let locked = File::create(&unnamed)?;
        locked.lock()?;
        std::fs::rename(&unnamed, folder.join(&name))?;
        Ok(Self { name: name.into(), folder: folder.to_owned(), _lock_file: locked })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether another holder's process has certainly ended.
    pub(crate) fn has_ended(&self, holder: &str) -> bool {
        let is_name = holder.ends_with(ENDING) && !holder.contains('/');
        is_name && *holder != *self.name && is_abandoned(&self.folder.join(holder))
    }
}

impl Drop for LeaseOwner {
    fn drop(&mut self) {
        // A remaining file is removed by the next gateway.
        let _ = std::fs::remove_file(self.folder.join(&*self.name));
    }
}

/// Whether no process holds the file's lock. A missing file has been cleared.
fn is_abandoned(file: &Path) -> bool {
    match File::open(file) {
        Ok(file) => file.try_lock().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes the files of killed gateways.
fn remove_abandoned(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ENDING) && is_abandoned(&path) {
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}
