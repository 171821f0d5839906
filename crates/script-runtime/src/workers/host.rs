//! What the workers of all scripts share: a folder with the worker's code, the command that starts them, their numbers,
//! and how many there may be. The code is not theirs to write; what each script's workers write is a folder of its own,
//! which no other script's workers reach.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::files::FILES;
use super::process::Launch;

/// What their folders' names begin with.
const PREFIX: &str = "orfa-";
/// The file that a gateway keeps locked.
const LOCK: &str = "lock";
/// The folder of the worker's code, in the gateway's.
const CODE: &str = "code";

/// What the workers of all scripts share.
pub(crate) struct Host {
    pub(super) launch: Launch,
    /// Of the gateway's user alone.
    folder: PathBuf,
    /// Locked as long as this gateway lives.
    _lock: File,
    last: AtomicU32,
    places: Arc<Semaphore>,
}

/// A folder that the workers of one script may write to. It goes with the last of them.
pub(super) struct ScriptHome {
    path: PathBuf,
    /// The folder that it lies in has to be there.
    _host: Arc<Host>,
}

impl Host {
    /// Writes the worker's files into a folder of their own.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn new(launch: Launch, most: usize) -> io::Result<Arc<Self>> {
        clear(&std::env::temp_dir());
        let (folder, lock) = folder()?;
        let code = folder.join(CODE);
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
            last: AtomicU32::new(0),
            places: Arc::new(Semaphore::new(most)),
        }))
    }

    /// A number that no worker of this gateway had before.
    pub(super) fn number(&self) -> u32 {
        self.last.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Room for one more worker.
    pub(super) fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The folder of the worker's code.
    pub(super) fn code(&self) -> PathBuf {
        self.folder.join(CODE)
    }

    /// A new folder for the workers of a script.
    pub(super) fn home(self: &Arc<Self>) -> io::Result<ScriptHome> {
        let path = self.folder.join(format!("home-{}", self.number()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(ScriptHome { path, _host: Arc::clone(self) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder); // It lies where temporary files lie.
    }
}

impl ScriptHome {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScriptHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // What is left goes with the folder around.
    }
}

/// A new folder that only the gateway's user can look into, and its lock.
fn folder() -> io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let name = format!("{PREFIX}{}-{:08x}", std::process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok((folder.clone(), lock(&folder).map_err(|error| told(&folder, &error))?)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
            Err(error) => return Err(told(&folder, &error)),
        }
    }
}

/// Locks a folder. The lock gets its name when it is held, so that nobody takes the folder for one that was left behind.
fn lock(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join("lock.new");
    let lock = File::create(&unnamed)?;
    lock.lock()?;
    std::fs::rename(unnamed, folder.join(LOCK))?;
    Ok(lock)
}

/// Removes the folders of gateways that were killed, this user's alone.
fn clear(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = rustix::process::geteuid().as_raw();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Not what a link leads to: anyone may put one here.
        if !entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own) {
            continue;
        }
        // Held until the folder is gone.
        let lock = open_file(&entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok() && std::fs::remove_dir_all(entry.path()).is_ok()) {
            tracing::debug!(target: "script", folder = ?entry.path(), "removed what a gateway that was killed has left");
        }
    }
}

/// Opens a file to read it. What else may have its name (a pipe, a link) is refused and waits for nobody.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("this is no file")) }
}

fn told(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_gateways_that_are_gone_are_removed_and_no_others() {
        let all = tempfile::tempdir().expect("a folder");
        let made = |name: &str| {
            let folder = all.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            folder
        };
        let (left, lives, unlocked, foreign) =
            (made("orfa-1-a"), made("orfa-2-b"), made("orfa-3-c"), made("other"));
        drop(lock(&left).expect("locked"));
        drop(lock(&foreign).expect("locked"));
        let _lives = lock(&lives).expect("locked");
        clear(all.path());
        assert_eq!([left, lives, unlocked, foreign].map(|folder| folder.exists()), [false, true, true, true]);
    }

    #[test]
    fn nobody_waits_for_a_lock_that_is_no_file_and_no_link_is_followed() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let all = tempfile::tempdir().expect("a folder");
        let kept = all.path().join("kept");
        std::fs::create_dir(&kept).expect("a folder");
        drop(lock(&kept).expect("locked"));
        for (name, kind) in [("orfa-1-a", FileType::Fifo), ("orfa-2-b", FileType::Socket)] {
            std::fs::create_dir(all.path().join(name)).expect("a folder");
            mknodat(CWD, all.path().join(name).join(LOCK), kind, Mode::RUSR | Mode::WUSR, 0).expect("made");
        }
        mknodat(CWD, all.path().join("orfa-3-c"), FileType::Fifo, Mode::RUSR, 0).expect("made");
        std::os::unix::fs::symlink(&kept, all.path().join("orfa-4-d")).expect("a link");
        std::fs::create_dir(all.path().join("orfa-5-e")).expect("a folder");
        std::os::unix::fs::symlink(kept.join(LOCK), all.path().join("orfa-5-e").join(LOCK)).expect("a link");
        clear(all.path());
        assert!(kept.join(LOCK).exists());
        assert_eq!(std::fs::read_dir(all.path()).expect("a folder").count(), 6, "all is left as it was");
    }
}
