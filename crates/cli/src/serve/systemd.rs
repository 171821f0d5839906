//! What a service manager is told by `sd_notify(3)`: a datagram with lines of `NAME=VALUE` to the socket
//! that `NOTIFY_SOCKET` names. Where there is none, nobody wants to know.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves, and is the process that the service stands for: where it took over from another one, that is
/// told before the other one has ended.
pub(super) fn serving() {
    tell(&format!("MAINPID={}\nREADY=1\nSTATUS=serving", std::process::id()));
}

/// It is done with reading its config again.
pub(super) fn reloaded() {
    tell("READY=1\nSTATUS=serving");
}

/// It reads its config again; [`reloaded`] follows, whatever comes of it.
pub(super) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// It drains.
pub(super) fn stopping() {
    tell("STOPPING=1\nSTATUS=draining");
}

fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent =
        address(&name).and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

/// A path, or after an `@` a name that is in no file system.
fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    }
}
