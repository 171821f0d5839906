//! The side of the process that takes over.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ListeningSockets, READY_MESSAGE, RELEASED_MESSAGE};
use crate::output::exit::CliError;

/// The timeout for the sockets, which the serving process sends without preparation.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection to the process that still serves.
pub(in super::super) struct HandoverConnection(UnixStream);

/// Takes the sockets of the process that listens at `path`; `None` if there is none.
pub(in super::super) fn request_handover(
    path: &Path,
) -> Result<Option<(ListeningSockets, HandoverConnection)>, CliError> {
    let failed = |error: io::Error| {
        let message = format!("can't take over through {}: {error}", path.display());
        let hint = "stop the gateway that listens there, or remove the file";
        CliError::internal("takeover-failed", message, hint)
    };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let receive = || {
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(io::Error::other("it belongs to another user"));
        }
        ListeningSockets::receive(&stream)
    };
    let sockets = receive().map_err(failed)?;
    tracing::info!(sockets = sockets.iter().count(), "takes over from the process before");
    Ok(Some((sockets, HandoverConnection(stream))))
}

/// The socket file of a process that has ended counts as absent.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl HandoverConnection {
    /// Notifies the previous process that this one serves, and waits until it has released the sockets. If it
    /// has ended meanwhile, that is fine: the sockets are here.
    pub(super) async fn confirm(self) -> io::Result<()> {
        self.0.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(self.0)?;
        stream.write_all(READY_MESSAGE).await?;
        let mut answer = [0; RELEASED_MESSAGE.len()];
        stream.read_exact(&mut answer).await?;
        Ok(())
    }
}
