//! Who we are among the gateways that have this state open.
//!
//! A gateway is the holder of leases under the name of a file that it keeps locked as long as it lives. So the next one
//! need not wait for the leases of one that was killed: the system gave its lock back. Between gateways in containers, which
//! don't see each other's processes, that holds too.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Our locked file.
#[derive(Debug)]
pub(crate) struct Holder {
    name: Arc<str>,
    folder: PathBuf,
    _locked: File,
}

/// What the files' names end with.
const ENDING: &str = ".gateway";

impl Holder {
    pub(crate) fn new(folder: &Path) -> std::io::Result<Self> {
        clear(folder)?;
        let name = format!("{:016x}{ENDING}", fastrand::u64(..));
        // It gets its name when it is locked, so that nobody takes it for one that was left behind.
        let unnamed = folder.join(format!("{name}.new"));
        let locked = File::create(&unnamed)?;
        locked.lock()?;
        std::fs::rename(&unnamed, folder.join(&name))?;
        Ok(Self { name: name.into(), folder: folder.to_owned(), _locked: locked })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether another holder's process is certainly gone.
    pub(crate) fn is_gone(&self, holder: &str) -> bool {
        let is_name = holder.ends_with(ENDING) && !holder.contains('/');
        is_name && *holder != *self.name && is_left(&self.folder.join(holder))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One that stays is cleared by the next gateway.
        let _ = std::fs::remove_file(self.folder.join(&*self.name));
    }
}

/// Whether nobody holds the file. One that is not there was cleared.
fn is_left(file: &Path) -> bool {
    match File::open(file) {
        Ok(file) => file.try_lock().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes the files of those that were killed.
fn clear(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ENDING) && is_left(&path) {
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}
