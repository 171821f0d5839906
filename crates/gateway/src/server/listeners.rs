//! The sockets that the gateway listens on, independent of the config that is served on them.
//!
//! They outlive everything else: a reload serves another config on the same sockets, and a new binary takes
//! them over, so that clients can connect at any time. Each socket has the name that the config uses for it,
//! by which a new owner recognises sockets that are open already. It can also be recognised by the address
//! that it listens on, if the names differ or it has none yet.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

/// The accept backlog: the number of connections that may wait to be accepted. Large enough for a burst
/// between two turns of the runtime. The system's own bound (`net.core.somaxconn`) applies as well.
pub(crate) const BACKLOG: i32 = 4096;

/// The listening sockets, in the order of the config.
#[derive(Debug)]
pub struct ListenerSet(Vec<Listener>);

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    name: String,
    socket: TcpListener,
}

/// An error for an address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {name}: {error}{}", covered(.by.as_deref()))]
pub struct BindError {
    /// The address, as the config contains it.
    pub name: String,
    /// The address of an inherited socket that overlaps with this one, as `0.0.0.0:80` does with
    /// `127.0.0.1:80`. The process that handed it over has it open too, so closing it here would not help.
    pub by: Option<String>,
    /// The system's error.
    #[source]
    pub error: io::Error,
}

impl ListenerSet {
    /// Binds the addresses in the config.
    ///
    /// # Errors
    /// Returns the first address that is in use or does not belong to this machine.
    pub fn bind<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, BindError> {
        Self::adopt(names, &mut Vec::new())
    }

    /// Like [`ListenerSet::bind`], but reuses the open sockets in `present` that the config names, and
    /// removes them from there.
    ///
    /// # Errors
    /// Returns the first address that is neither open already nor available.
    pub fn adopt<'a>(
        names: impl IntoIterator<Item = &'a str>,
        present: &mut Vec<Listener>,
    ) -> Result<Self, BindError> {
        let mut one = |name: &str| match position(present, name) {
            Some(index) => Ok(Listener { name: name.to_owned(), ..present.remove(index) }),
            None => Listener::bind(name).map_err(|error| BindError {
                name: name.to_owned(),
                by: overlapping_address(present, name).filter(|_| error.kind() == io::ErrorKind::AddrInUse),
                error,
            }),
        };
        names.into_iter().map(&mut one).collect::<Result<_, _>>().map(Self)
    }

    /// Duplicates the handles of the sockets.
    ///
    /// # Errors
    /// Fails if the process has no more file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.iter().map(Listener::try_clone).collect::<io::Result<_>>().map(Self)
    }

    /// The addresses that the sockets are bound to. Port 0 in the config is replaced by the actual port.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(Listener::address).collect()
    }

    /// Iterates over the sockets.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter()
    }

    /// Returns the sockets, to be served or handed over.
    #[must_use]
    pub fn into_vec(self) -> Vec<Listener> {
        self.0
    }
}

/// Returns the index of the socket with this name, or else with this address.
fn position(present: &[Listener], name: &str) -> Option<usize> {
    let address = name.parse().ok();
    let named = present.iter().position(|listener| listener.name == name);
    named.or_else(|| present.iter().position(|listener| address.is_some() && listener.address() == address))
}

/// Returns the address of a socket that overlaps with this address, if one of the two is unspecified.
fn overlapping_address(present: &[Listener], name: &str) -> Option<String> {
    let address: SocketAddr = name.parse().ok()?;
    let covers = |other: SocketAddr| {
        other.port() == address.port() && (other.ip().is_unspecified() || address.ip().is_unspecified())
    };
    present.iter().filter_map(Listener::address).find(|other| covers(*other)).map(|other| other.to_string())
}

fn covered(by: Option<&str>) -> String {
    by.map_or_else(String::new, |by| format!(", by {by} that was handed over and overlaps it"))
}

impl Listener {
    /// Wraps a socket that was opened elsewhere and listens already.
    #[must_use]
    pub fn from_std(name: String, socket: TcpListener) -> Self {
        Self { name, socket }
    }

    /// Duplicates the handle of the socket.
    ///
    /// # Errors
    /// Fails if the process has no more file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { name: self.name.clone(), socket: self.socket.try_clone()? })
    }

    /// The address, as the config contains it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that the socket is bound to.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    fn bind(name: &str) -> io::Result<Self> {
        let address: SocketAddr =
            name.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TcpListener::bind(address)?;
        // The standard library uses a smaller backlog.
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { name: name.to_owned(), socket })
    }

    /// Converts the socket for accepting connections in the runtime.
    pub(crate) fn into_tokio(self) -> io::Result<tokio::net::TcpListener> {
        self.socket.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(self.socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind_listener(name: &str) -> Listener {
        Listener::bind(name).unwrap()
    }

    #[test]
    fn adopts_sockets_by_name_and_else_by_address() {
        let mut present =
            vec![bind_listener("127.0.0.1:0"), bind_listener("127.0.0.2:0"), bind_listener("[::1]:0")];
        let [first, second, third] = [0, 1, 2].map(|index: usize| present[index].address().unwrap());
        let sixth = format!("[0:0:0:0:0:0:0:1]:{}", third.port());
        let names = [second.to_string(), "127.0.0.1:0".to_owned(), sixth];
        let adopted = ListenerSet::adopt(names.iter().map(String::as_str), &mut present).unwrap();
        assert_eq!(adopted.addresses(), [second, first, third]);
        assert!(adopted.iter().map(Listener::name).eq(&names), "adopted sockets take the config's names");
        assert!(present.is_empty());
    }

    #[test]
    fn leaves_sockets_that_the_config_does_not_name() {
        let mut present = vec![bind_listener("127.0.0.1:0"), bind_listener("127.0.0.2:0")];
        let left = present[1].address();
        assert_eq!(ListenerSet::adopt(["127.0.0.1:0"], &mut present).unwrap().iter().count(), 1);
        assert_eq!(present.iter().map(Listener::address).collect::<Vec<_>>(), [left]);
    }

    #[test]
    fn a_bind_error_names_the_socket_that_overlaps() {
        for (there, wanted) in [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")] {
            let mut present = vec![bind_listener(&format!("{there}:0"))];
            let port = present[0].address().unwrap().port();
            let error = ListenerSet::adopt([&*format!("{wanted}:{port}")], &mut present).unwrap_err();
            assert_eq!(error.by, Some(format!("{there}:{port}")));
            assert!(error.to_string().contains(&format!("{there}:{port} that was handed over")), "{error}");
        }
    }

    #[test]
    fn does_not_bind_an_address_that_is_in_use() {
        let listener = bind_listener("127.0.0.1:0");
        let name = listener.address().unwrap().to_string();
        let error = ListenerSet::bind([&*name]).unwrap_err();
        assert_eq!((error.by, error.error.kind()), (None, io::ErrorKind::AddrInUse));
    }
}
