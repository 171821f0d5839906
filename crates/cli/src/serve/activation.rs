//! Sockets that systemd has opened for the gateway (`sd_listen_fds(3)`): they stay open while it is started
//! anew, so that clients wait instead of being refused, and may have ports that it could not bind itself.
//!
//! Each is known by the address that it listens on, and the config has to name it: `FileDescriptorName=`
//! says nothing here. What comes by a takeover is preferred; it is the same socket. `gateway::Listeners`
//! puts the two together.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::str::FromStr;

use gateway::Listener;
use rustix::net::sockopt::socket_acceptconn;

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// What was handed over to this very process, and is a TCP socket that listens. To be called before any
/// other descriptor is opened.
pub(super) fn sockets() -> Vec<Listener> {
    let is_ours = number("LISTEN_PID") == Some(std::process::id());
    let count: u16 = number("LISTEN_FDS").filter(|_| is_ours).unwrap_or_default();
    (FIRST..).zip(0..count).filter_map(|(descriptor, _)| socket(descriptor)).collect()
}

fn number<N: FromStr>(name: &str) -> Option<N> {
    std::env::var(name).ok()?.parse().ok()
}

fn socket(descriptor: RawFd) -> Option<Listener> {
    #[expect(unsafe_code, reason = "the environment gives a number and not a descriptor")]
    // SAFETY: it is borrowed for this function only, in which nothing closes it. If it is not open, the
    // system calls below say so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // A handle of our own. The number stays open for as long as the process lives, as it does in systemd.
    let socket = borrowed.try_clone_to_owned().map(TcpListener::from);
    let found =
        socket.and_then(|socket| Ok((socket.local_addr()?, socket_acceptconn(socket.as_fd())?, socket)));
    match found {
        Ok((address, true, socket)) => Some(Listener::from_std(address.to_string(), socket)),
        _ => {
            tracing::warn!(descriptor, "what systemd hands over is no TCP socket that listens");
            None
        }
    }
}
