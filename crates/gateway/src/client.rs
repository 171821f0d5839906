//! The other end of a connection: what a request knows of who sent it before a byte of it is read.

use std::net::SocketAddr;

use crate::server::Unread;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) unread: Unread,
}
