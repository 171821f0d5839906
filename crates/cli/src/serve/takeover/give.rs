//! The side of the process that serves, and that lets another one take over.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};

use super::{READY, Sockets, Taken, YOURS};

/// Between two attempts of others, should they fail one after the other.
const BREATHER: Duration = Duration::from_millis(100);

/// What is to be given away one day.
pub(in super::super) struct Giver {
    path: PathBuf,
    sockets: Sockets,
}

/// The Unix socket in its place. Its file goes with it, unless another process has put its own there.
struct Door {
    path: PathBuf,
    listener: UnixListener,
    is_ours: bool,
}

impl Giver {
    /// `sockets` are handles of what this process listens on.
    pub(in super::super) fn new(path: PathBuf, sockets: Sockets) -> Self {
        Self { path, sockets }
    }

    /// Ends the takeover of this process itself, if it was one, then waits until another process has taken
    /// over from it; that one's process ID. Where it goes wrong, this process serves on.
    pub(in super::super) async fn give(self, taken: Option<Taken>) -> Option<u32> {
        if let Some(taken) = taken {
            match taken.settle().await {
                Ok(()) => tracing::info!("the process before has let go"),
                Err(error) => tracing::warn!(%error, "the process before has ended"),
            }
        }
        let mut door = match Door::open(&self.path) {
            Ok(door) => door,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "no binary can take over");
                return std::future::pending().await;
            }
        };
        tracing::info!(path = %self.path.display(), "can be taken over");
        loop {
            match self.give_once(&mut door).await {
                Ok(pid) => return pid,
                Err(error) => {
                    tracing::warn!(%error, "nobody took over: this process goes on");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    async fn give_once(&self, door: &mut Door) -> io::Result<Option<u32>> {
        let (mut stream, _) = door.listener.accept().await?;
        let peer = stream.peer_cred()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!("user {} is another one", peer.uid())));
        }
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        tracing::info!(pid, "another process wants to take over");
        self.send(&stream).await?;
        let mut answer = [0; READY.len()];
        stream.read_exact(&mut answer).await?;
        if answer != READY {
            return Err(io::Error::other("it said something else than `ready`"));
        }
        // From here on there is no way back: it serves.
        door.is_ours = false;
        if let Err(error) = stream.write_all(YOURS).await {
            tracing::debug!(%error, "the process that took over did not wait");
        }
        Ok(pid)
    }

    async fn send(&self, stream: &UnixStream) -> io::Result<()> {
        loop {
            stream.writable().await?;
            match stream.try_io(Interest::WRITABLE, || self.sockets.send(stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
    }
}

impl Door {
    /// Made aside and then put in place at once: there is always one, and nobody else can open it.
    fn open(path: &Path) -> io::Result<Self> {
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
            return Err(io::Error::other("there is a file that is no socket"));
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}", std::process::id()));
        let listener = UnixListener::bind(&aside)?;
        let placed = std::fs::set_permissions(&aside, Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&aside, path));
        if let Err(error) = placed {
            let _ = std::fs::remove_file(&aside);
            return Err(error);
        }
        Ok(Self { path: path.to_owned(), listener, is_ours: true })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
