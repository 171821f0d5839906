//! What the workers of all scripts share: a folder of their own with the worker's files and a socket, the command
//! that starts them, their numbers, and how many there may be.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;

use super::files::FILES;
use super::process::Launch;
use crate::frame::{From, Reader};

/// Within this time whoever connects has said who it is.
const HELLO: Duration = Duration::from_secs(20);

/// What lies in a worker's socket until it reads, where the system allows that much: several bodies of 100 KB, so that
/// it is not woken for each.
const SENT: usize = 512 << 10;
/// What a worker's watchdog says in the place of an engine.
const WATCHDOG: &str = "watchdog";
/// What their folders' names begin with.
const PREFIX: &str = "orfa-";
/// The file that a gateway keeps locked.
const LOCK: &str = "lock";

/// What the workers of all scripts share.
pub(crate) struct Host {
    pub(super) launch: Launch,
    /// Of the gateway's user alone.
    pub(super) home: PathBuf,
    /// Locked as long as this gateway lives.
    _lock: File,
    last: AtomicU32,
    expected: Mutex<HashMap<u32, Expected>>,
    accepts: OnceLock<AbortHandle>,
    places: Arc<Semaphore>,
}

/// Whom a worker that connects is handed to: one connection is for runs, the other its watchdog's.
struct Expected {
    main: Option<oneshot::Sender<Connection>>,
    watchdog: Option<oneshot::Sender<Connection>>,
}

/// A worker's connection, and what was read of it.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) reader: Reader,
    pub(super) engine: String,
}

/// A worker's connections, when they are there.
pub(super) struct Connections {
    pub(super) main: oneshot::Receiver<Connection>,
    pub(super) watchdog: oneshot::Receiver<Connection>,
}

impl Host {
    /// Writes the worker's files into a folder of their own.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn new(launch: Launch, most: usize) -> io::Result<Arc<Self>> {
        clear(&std::env::temp_dir());
        let (home, lock) = folder()?;
        for (name, text) in FILES {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(home.join(name))?;
            file.write_all(text.as_bytes())?;
        }
        Ok(Arc::new(Self {
            launch,
            home,
            _lock: lock,
            last: AtomicU32::new(0),
            expected: Mutex::default(),
            accepts: OnceLock::new(),
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

    pub(super) fn file(&self) -> PathBuf {
        self.home.join("worker.js")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.home.join("gateway.sock")
    }

    /// Hands out the connections of this worker when it comes.
    pub(super) fn expect(self: &Arc<Self>, worker: u32) -> io::Result<Connections> {
        if self.accepts.get().is_none() {
            let mut expected = self.expected();
            self.listen()?;
            expected.reserve(8);
        }
        let (to_main, main) = oneshot::channel();
        let (to_watchdog, watchdog) = oneshot::channel();
        self.expected().insert(worker, Expected { main: Some(to_main), watchdog: Some(to_watchdog) });
        Ok(Connections { main, watchdog })
    }

    pub(super) fn forget(&self, worker: u32) {
        self.expected().remove(&worker);
    }

    /// Begins to listen, once.
    fn listen(self: &Arc<Self>) -> io::Result<()> {
        if self.accepts.get().is_some() {
            return Ok(());
        }
        let listener = UnixListener::bind(self.socket())?;
        let task = tokio::spawn(accept(listener, Arc::downgrade(self))).abort_handle();
        let _ = self.accepts.set(task); // Under the lock there is none yet.
        Ok(())
    }

    fn take(&self, worker: u32, connection: Connection) {
        let mut expected = self.expected();
        let Some(expected) = expected.get_mut(&worker) else { return };
        // Either of them may come first: the watchdog is a thread of its own.
        let awaited = if connection.engine == WATCHDOG { &mut expected.watchdog } else { &mut expected.main };
        if let Some(next) = awaited.take() {
            let _ = next.send(connection); // Whoever waited is gone, and the worker with it.
        }
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<u32, Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(task) = self.accepts.get() {
            task.abort();
        }
        let _ = std::fs::remove_dir_all(&self.home); // It lies where temporary files lie.
    }
}

async fn accept(listener: UnixListener, host: Weak<Host>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await; // Out of file descriptors, as a rule.
            continue;
        };
        let Some(host) = host.upgrade() else { return };
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SENT); // It works with less.
        tokio::spawn(async move {
            if let Ok(Some((worker, connection))) = tokio::time::timeout(HELLO, hello(stream)).await {
                host.take(worker, connection);
            }
        });
    }
}

/// Who it is that connected.
async fn hello(mut stream: UnixStream) -> Option<(u32, Connection)> {
    let mut reader = Reader::default();
    loop {
        if let Some((_, from)) = reader.next().ok()? {
            let From::Hello { worker, engine } = from else { return None };
            return Some((worker, Connection { stream, reader, engine }));
        }
        if stream.read_buf(&mut reader.buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// A new folder that only the gateway's user can look into, and its lock. Sockets have short paths, so that it is not
/// deep.
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

/// Removes the folders of gateways that were killed. What can't be removed is another user's.
fn clear(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Held until the folder is gone.
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok() && std::fs::remove_dir_all(entry.path()).is_ok()) {
            tracing::debug!(target: "script", folder = ?entry.path(), "removed what a gateway that was killed has left");
        }
    }
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
}
