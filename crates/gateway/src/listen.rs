//! The sockets that the gateway listens on, apart from what is served there.
//!
//! They outlive everything else: a reload serves another config on the same sockets, and a new binary
//! takes them over, so that no client finds the door closed. Each keeps the text that the config names
//! it by, which is how whoever takes over finds out what is there already; and where it names another
//! text, or nobody has named it yet, the address that it really listens on.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

/// How many connections may wait to be accepted: more than a burst brings between two turns of the
/// runtime. The system's own bound (`net.core.somaxconn`) holds as well.
pub(crate) const BACKLOG: i32 = 4096;

/// The listening sockets, in the order of the config.
#[derive(Debug)]
pub struct Listeners(Vec<Listener>);

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    name: String,
    socket: TcpListener,
}

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {name}: {error}{}", covered(.by.as_deref()))]
pub struct BindError {
    /// The address, as the config has it.
    pub name: String,
    /// A socket that was handed over and is in the way: that of `0.0.0.0:80` for `127.0.0.1:80`. Whoever
    /// handed it over has it too, so that it can't be closed from here.
    pub by: Option<String>,
    /// Why not.
    #[source]
    pub error: io::Error,
}

impl Listeners {
    /// Binds what the config names.
    ///
    /// # Errors
    /// The first address that is taken or not this machine's.
    pub fn bind<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, BindError> {
        Self::adopt(names, &mut Vec::new())
    }

    /// The same, with sockets that are there already: those that the config names are taken out.
    ///
    /// # Errors
    /// The first address that is neither there nor to be had.
    pub fn adopt<'a>(
        names: impl IntoIterator<Item = &'a str>,
        present: &mut Vec<Listener>,
    ) -> Result<Self, BindError> {
        let mut one = |name: &str| match position(present, name) {
            Some(index) => Ok(Listener { name: name.to_owned(), ..present.remove(index) }),
            None => Listener::bind(name).map_err(|error| BindError {
                name: name.to_owned(),
                by: in_the_way(present, name).filter(|_| error.kind() == io::ErrorKind::AddrInUse),
                error,
            }),
        };
        names.into_iter().map(&mut one).collect::<Result<_, _>>().map(Self)
    }

    /// Handles of the same sockets.
    ///
    /// # Errors
    /// When the process has no more file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.iter().map(Listener::try_clone).collect::<io::Result<_>>().map(Self)
    }

    /// Where they really listen: port 0 of the config has become another.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(Listener::address).collect()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter()
    }

    /// Each of them, to be served or handed on.
    #[must_use]
    pub fn into_vec(self) -> Vec<Listener> {
        self.0
    }
}

/// The socket that has this name, or else this address.
fn position(present: &[Listener], name: &str) -> Option<usize> {
    let address = name.parse().ok();
    let named = present.iter().position(|listener| listener.name == name);
    named.or_else(|| present.iter().position(|listener| address.is_some() && listener.address() == address))
}

/// The socket that covers part of this address: one of the two is for all of the machine's.
fn in_the_way(present: &[Listener], name: &str) -> Option<String> {
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
    /// A socket that came from elsewhere and listens already.
    #[must_use]
    pub fn from_std(name: String, socket: TcpListener) -> Self {
        Self { name, socket }
    }

    /// A handle of the same socket.
    ///
    /// # Errors
    /// When the process has no more file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { name: self.name.clone(), socket: self.socket.try_clone()? })
    }

    /// The address as the config has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it really listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    fn bind(name: &str) -> io::Result<Self> {
        let address: SocketAddr =
            name.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TcpListener::bind(address)?;
        // The standard library lets fewer wait.
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { name: name.to_owned(), socket })
    }

    /// For the runtime, which accepts on it.
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

    fn bound(name: &str) -> Listener {
        Listener::bind(name).unwrap()
    }

    #[test]
    fn a_socket_is_known_by_its_name_and_else_by_its_address() {
        let mut present = vec![bound("127.0.0.1:0"), bound("127.0.0.2:0"), bound("[::1]:0")];
        let [first, second, third] = [0, 1, 2].map(|index: usize| present[index].address().unwrap());
        let sixth = format!("[0:0:0:0:0:0:0:1]:{}", third.port());
        let names = [second.to_string(), "127.0.0.1:0".to_owned(), sixth];
        let adopted = Listeners::adopt(names.iter().map(String::as_str), &mut present).unwrap();
        assert_eq!(adopted.addresses(), [second, first, third]);
        assert!(adopted.iter().map(Listener::name).eq(&names), "they have the config's names from here on");
        assert!(present.is_empty());
    }

    #[test]
    fn what_is_not_named_is_left_for_others() {
        let mut present = vec![bound("127.0.0.1:0"), bound("127.0.0.2:0")];
        let left = present[1].address();
        assert_eq!(Listeners::adopt(["127.0.0.1:0"], &mut present).unwrap().iter().count(), 1);
        assert_eq!(present.iter().map(Listener::address).collect::<Vec<_>>(), [left]);
    }

    #[test]
    fn a_socket_that_overlaps_is_named() {
        for (there, wanted) in [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")] {
            let mut present = vec![bound(&format!("{there}:0"))];
            let port = present[0].address().unwrap().port();
            let error = Listeners::adopt([&*format!("{wanted}:{port}")], &mut present).unwrap_err();
            assert_eq!(error.by, Some(format!("{there}:{port}")));
            assert!(error.to_string().contains(&format!("{there}:{port} that was handed over")), "{error}");
        }
    }

    #[test]
    fn an_address_that_somebody_else_has_is_theirs() {
        let theirs = bound("127.0.0.1:0");
        let name = theirs.address().unwrap().to_string();
        let error = Listeners::bind([&*name]).unwrap_err();
        assert_eq!((error.by, error.error.kind()), (None, io::ErrorKind::AddrInUse));
    }
}
