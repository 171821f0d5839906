//! The sockets that the gateway listens on, apart from what is served there.
//!
//! They outlive everything else: a reload serves another config on the same sockets, and a new binary
//! takes them over, so that no client finds the door closed. Each keeps the text that the config names
//! it by, which is how whoever takes over finds out what is there already.

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
#[error("can't listen on {name}: {error}")]
pub struct BindError {
    /// The address, as the config has it.
    pub name: String,
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
        Self::adopt(names, Vec::new())
    }

    /// The same, with sockets that are there already: what the config names no longer is closed.
    ///
    /// # Errors
    /// The first address that is neither there nor to be had.
    pub fn adopt<'a>(
        names: impl IntoIterator<Item = &'a str>,
        mut present: Vec<Listener>,
    ) -> Result<Self, BindError> {
        let mut one = |name: &str| match present.iter().position(|listener| listener.name == name) {
            Some(index) => Ok(present.swap_remove(index)),
            None => Listener::bind(name).map_err(|error| BindError { name: name.to_owned(), error }),
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
