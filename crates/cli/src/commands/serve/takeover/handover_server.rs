//! The side of the serving process that gives its sockets away.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};

use super::{HandoverConnection, ListeningSockets, READY_MESSAGE, RELEASED_MESSAGE};

/// The pause after a failed takeover.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The sockets to be given away, and the path of the Unix socket.
pub(in super::super) struct HandoverServer {
    path: PathBuf,
    sockets: ListeningSockets,
}

/// The Unix socket. Dropping it removes its file, unless another process has replaced it.
struct HandoverSocket {
    path: PathBuf,
    listener: UnixListener,
    owns_file: bool,
}

impl HandoverServer {
    /// Creates a giver for `sockets`, which are duplicates of the listening sockets.
    pub(in super::super) fn new(path: PathBuf, sockets: ListeningSockets) -> Self {
        Self { path, sockets }
    }

    /// Completes the takeover by this process itself, if it was one. Then waits until another process has
    /// taken over, and returns its process ID. Failed attempts are logged, and this process continues to
    /// serve.
    pub(in super::super) async fn serve_handover(
        self,
        connection: Option<HandoverConnection>,
    ) -> Option<u32> {
        if let Some(handover_connection) = connection {
            match handover_connection.confirm().await {
                Ok(()) => tracing::info!("the previous process has released its sockets"),
                Err(error) => tracing::warn!(%error, "the previous process has ended"),
            }
        }
        let mut door = match HandoverSocket::bind(&self.path) {
            Ok(door) => door,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "no process can take over");
                return std::future::pending().await;
            }
        };
        tracing::info!(path = %self.path.display(), "can be taken over");
        loop {
            match self.hand_over_once(&mut door).await {
                Ok(pid) => return pid,
                Err(error) => {
                    tracing::warn!(%error, "the takeover failed: this process continues to serve");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn hand_over_once(&self, door: &mut HandoverSocket) -> io::Result<Option<u32>> {
        let (mut stream, _) = door.listener.accept().await?;
        let peer = stream.peer_cred()?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!("user {} is not the gateway's user", peer.uid())));
        }
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        tracing::info!(pid, "another process requests a takeover");
        self.send(&stream).await?;
        let mut answer = [0; READY_MESSAGE.len()];
        stream.read_exact(&mut answer).await?;
        if answer != READY_MESSAGE {
            return Err(io::Error::other("it sent something other than `ready`"));
        }
        // From here on the other process serves, and the takeover can't be undone.
        door.owns_file = false;
        if let Err(error) = stream.write_all(RELEASED_MESSAGE).await {
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

impl HandoverSocket {
    /// Binds a temporary path and renames it into place, so that there is always a socket and its permissions
    /// are set.
    fn bind(path: &Path) -> io::Result<Self> {
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
            return Err(io::Error::other("there is a file that is not a socket"));
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
        Ok(Self { path: path.to_owned(), listener, owns_file: true })
    }
}

impl Drop for HandoverSocket {
    fn drop(&mut self) {
        if self.owns_file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
