//! Notifications to a service manager with `sd_notify(3)`: a datagram with lines of `NAME=VALUE` to the
//! socket in `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that this process serves, and that it is the main process of the service. After a takeover this is
/// sent before the previous process ends.
pub(super) fn notify_serving() {
    notify(&format!("MAINPID={}\nREADY=1\nSTATUS=serving", std::process::id()));
}

/// Reports that the config has been read again.
pub(super) fn notify_reloaded() {
    notify("READY=1\nSTATUS=serving");
}

/// Reports that the config is being read again; [`notify_reloaded`] follows in any case.
pub(super) fn notify_reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// Reports that the gateway drains.
pub(super) fn notify_stopping() {
    notify("STOPPING=1\nSTATUS=draining");
}

fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = socket_address(&name)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager can't be notified");
    }
}

/// Parses a path, or an abstract name after an `@`.
fn socket_address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    }
}
