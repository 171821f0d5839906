//! Socket activation: sockets that systemd has opened for the gateway (`sd_listen_fds(3)`). They stay open
//! during a restart, so that clients wait instead of being refused, and may have ports that the gateway could
//! not bind itself.
//!
//! A socket is identified by its local address, which the config has to name; `FileDescriptorName=` is
//! ignored. A socket from a takeover takes precedence, since it is the same socket. `gateway::ListenerSet`
//! combines both.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::str::FromStr;

use gateway::Listener;
use rustix::net::sockopt::socket_acceptconn;

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST_DESCRIPTOR: RawFd = 3;

/// Returns the listening TCP sockets that were passed to this process. It must be called before any other
/// descriptor is opened.
pub(super) fn inherited_sockets() -> Vec<Listener> {
    let is_ours = env_number("LISTEN_PID") == Some(std::process::id());
    let count: u16 = env_number("LISTEN_FDS").filter(|_| is_ours).unwrap_or_default();
    (FIRST_DESCRIPTOR..).zip(0..count).filter_map(|(descriptor, _)| adopt_descriptor(descriptor)).collect()
}

fn env_number<N: FromStr>(name: &str) -> Option<N> {
    std::env::var(name).ok()?.parse().ok()
}

fn adopt_descriptor(descriptor: RawFd) -> Option<Listener> {
    #[expect(unsafe_code, reason = "the environment gives a number and not a descriptor")]
    // SAFETY: it is borrowed within this function only, and nothing closes it meanwhile. If it is not open,
    // the system calls below return an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // A duplicate that this process owns. The original stays open as long as the process, as it does in
    // systemd.
    let socket = borrowed.try_clone_to_owned().map(TcpListener::from);
    let found =
        socket.and_then(|socket| Ok((socket.local_addr()?, socket_acceptconn(socket.as_fd())?, socket)));
    match found {
        Ok((address, true, socket)) => Some(Listener::from_std(address.to_string(), socket)),
        _ => {
            tracing::warn!(descriptor, "the descriptor from systemd is not a listening TCP socket");
            None
        }
    }
}
