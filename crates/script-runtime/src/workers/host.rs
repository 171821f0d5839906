//! The resources that the workers of all scripts share: a folder with the worker's code, the command that
//! starts workers, their numbering, and their maximum number. Workers cannot write to the code; each script's
//! workers have a writable folder of their own, which those of other scripts cannot access.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::files::FILES;
use super::process::LaunchCommand;

/// The prefix of the names of gateways' folders.
const PREFIX: &str = "orfa-";
/// The file that a gateway keeps locked.
const LOCK_FILE: &str = "lock";
/// The folder of the worker's code, inside the gateway's folder.
const CODE_FOLDER: &str = "code";

/// The resources that the workers of all scripts share.
pub(crate) struct WorkerHost {
    pub(super) launch: LaunchCommand,
    /// The gateway's folder, accessible only to its user.
    folder: PathBuf,
    /// Locked for the lifetime of this gateway.
    _lock: File,
    last_number: AtomicU32,
    permits: Arc<Semaphore>,
}

/// A folder that the workers of one script may write to. It is removed with the last of them.
pub(super) struct ScriptHome {
    path: PathBuf,
    /// Keeps the parent folder alive.
    _host: Arc<WorkerHost>,
}

impl WorkerHost {
    /// Writes the worker's files into a new folder.
    ///
    /// # Errors
    /// Any error of the file system.
    pub(crate) fn new(launch: LaunchCommand, most: usize) -> io::Result<Arc<Self>> {
        remove_abandoned(&std::env::temp_dir());
        let (folder, lock) = create_folder()?;
        let code = folder.join(CODE_FOLDER);
        DirBuilder::new().mode(0o700).create(&code)?;
        for (name, text) in FILES {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o400).open(code.join(name))?;
            file.write_all(text.as_bytes())?;
        }
        Ok(Arc::new(Self {
            launch,
            folder,
            _lock: lock,
            last_number: AtomicU32::new(0),
            permits: Arc::new(Semaphore::new(most)),
        }))
    }

    /// Returns a number that no earlier worker of this gateway had.
    pub(super) fn next_number(&self) -> u32 {
        self.last_number.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Acquires the permit for one more worker.
    pub(super) fn try_acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Returns the folder of the worker's code.
    pub(super) fn code_folder(&self) -> PathBuf {
        self.folder.join(CODE_FOLDER)
    }

    /// Creates a folder for the workers of a script.
    pub(super) fn create_home(self: &Arc<Self>) -> io::Result<ScriptHome> {
        let path = self.folder.join(format!("home-{}", self.next_number()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(ScriptHome { path, _host: Arc::clone(self) })
    }
}

impl Drop for WorkerHost {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder); // It is a temporary folder.
    }
}

impl ScriptHome {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScriptHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // The parent is removed later.
    }
}

/// Creates a folder that only the gateway's user can access, and locks it.
fn create_folder() -> io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let name = format!("{PREFIX}{}-{:08x}", std::process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                return Ok((
                    folder.clone(),
                    lock_folder(&folder).map_err(|error| with_folder(&folder, &error))?,
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
            Err(error) => return Err(with_folder(&folder, &error)),
        }
    }
}

/// Locks a folder. The lock file gets its name only after it is locked, so that no other gateway considers
/// the folder abandoned.
fn lock_folder(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join("lock.new");
    let lock = File::create(&unnamed)?;
    lock.lock()?;
    std::fs::rename(unnamed, folder.join(LOCK_FILE))?;
    Ok(lock)
}

/// Removes the folders of killed gateways of the same user.
fn remove_abandoned(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = rustix::process::geteuid().as_raw();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Links are not followed: any user can create one here.
        if !entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own) {
            continue;
        }
        // The lock is held until the folder is removed.
        let lock = open_file(&entry.path().join(LOCK_FILE));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok() && std::fs::remove_dir_all(entry.path()).is_ok()) {
            tracing::debug!(target: "script", folder = ?entry.path(), "removed the folder of a killed gateway");
        }
    }
}

/// Opens a regular file for reading. Other types (a pipe, a link) are refused without blocking.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

fn with_folder(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_folders_of_dead_gateways() {
        let all = tempfile::tempdir().expect("a folder");
        let made = |name: &str| {
            let folder = all.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            folder
        };
        let (left, lives, unlocked, foreign) =
            (made("orfa-1-a"), made("orfa-2-b"), made("orfa-3-c"), made("other"));
        drop(lock_folder(&left).expect("locked"));
        drop(lock_folder(&foreign).expect("locked"));
        let _lives = lock_folder(&lives).expect("locked");
        remove_abandoned(all.path());
        assert_eq!([left, lives, unlocked, foreign].map(|folder| folder.exists()), [false, true, true, true]);
    }

    #[test]
    fn a_lock_that_is_a_pipe_does_not_block_and_links_are_not_followed() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let all = tempfile::tempdir().expect("a folder");
        let kept = all.path().join("kept");
        std::fs::create_dir(&kept).expect("a folder");
        drop(lock_folder(&kept).expect("locked"));
        for (name, kind) in [("orfa-1-a", FileType::Fifo), ("orfa-2-b", FileType::Socket)] {
            std::fs::create_dir(all.path().join(name)).expect("a folder");
            mknodat(CWD, all.path().join(name).join(LOCK_FILE), kind, Mode::RUSR | Mode::WUSR, 0)
                .expect("made");
        }
        mknodat(CWD, all.path().join("orfa-3-c"), FileType::Fifo, Mode::RUSR, 0).expect("made");
        std::os::unix::fs::symlink(&kept, all.path().join("orfa-4-d")).expect("a link");
        std::fs::create_dir(all.path().join("orfa-5-e")).expect("a folder");
        std::os::unix::fs::symlink(kept.join(LOCK_FILE), all.path().join("orfa-5-e").join(LOCK_FILE))
            .expect("a link");
        remove_abandoned(all.path());
        assert!(kept.join(LOCK_FILE).exists());
        assert_eq!(std::fs::read_dir(all.path()).expect("a folder").count(), 6, "nothing is removed");
    }
}
