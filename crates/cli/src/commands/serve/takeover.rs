//! Takeover of the listening sockets by a new process, without refusing any connection.
//!
//! The serving process listens on a Unix socket, `takeover:` in its config, that only its own user can open:
//!
//! 1. The new process connects, before it has built anything.
//! 2. The old one sends its listening sockets: a line of JSON with the sockets attached.
//! 3. The new one builds itself, accepts on them, and sends `ready`.
//! 4. The old one sends `yours`, stops accepting and drains.
//! 5. The new one replaces the old one's Unix socket with its own.
//!
//! If the new process ends before it is ready, the old one continues unaffected. `handover_client.rs` is the
//! new process's side, `handover_server.rs` the old one's. No network connection is opened here.

mod handover_client;
mod handover_server;

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use gateway::Listener;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

pub(super) use handover_client::{HandoverConnection, request_handover};
pub(super) use handover_server::HandoverServer;

/// The version of the message. Another version is refused.
const VERSION: u32 = 1;
/// The maximum number of sockets in a message (`SCM_MAX_FD` of Linux).
const MAX_SOCKETS: usize = 253;
/// The maximum length of the line, ample for that many addresses.
const MAX_LINE_LENGTH: usize = 64 << 10;

const READY_MESSAGE: &[u8] = b"ready\n";
const RELEASED_MESSAGE: &[u8] = b"yours\n";

/// The listening sockets of a process.
#[derive(Debug, Default)]
pub(super) struct ListeningSockets {
    /// The sockets for clients.
    pub(super) listeners: Vec<Listener>,
    /// The admin socket.
    pub(super) admin: Option<Listener>,
}

/// The line of JSON: the names of the attached sockets, in order.
#[derive(Debug, Deserialize, Serialize)]
struct HandoverMessage {
    version: u32,
    listen: Vec<String>,
    admin: Option<String>,
}

impl ListeningSockets {
    /// Returns all of them in one list.
    pub(super) fn into_vec(self) -> Vec<Listener> {
        self.listeners.into_iter().chain(self.admin).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().chain(&self.admin)
    }

    /// Sends all of them.
    fn send(&self, to: impl AsFd) -> io::Result<()> {
        let message = HandoverMessage {
            version: VERSION,
            listen: self.listeners.iter().map(|listener| listener.name().to_owned()).collect(),
            admin: self.admin.as_ref().map(|listener| listener.name().to_owned()),
        };
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        let sockets: Vec<BorrowedFd<'_>> = self.iter().map(AsFd::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(sockets.len()))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fits = sockets.len() <= MAX_SOCKETS && control.push(SendAncillaryMessage::ScmRights(&sockets));
        let sent = match fits {
            true => sendmsg(to, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?,
            false => return Err(io::Error::other("too many sockets for one message")),
        };
        // The line is shorter than the buffer of a new connection.
        if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Waits for and receives the message of [`ListeningSockets::send`].
    fn receive(from: &UnixStream) -> io::Result<Self> {
        let mut line = vec![0; MAX_LINE_LENGTH];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut line)];
        let length = recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let mut sockets = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                sockets.extend(received);
            }
        }
        line.truncate(length);
        while length > 0 && line.last() != Some(&b'\n') && line.len() < MAX_LINE_LENGTH {
            let mut byte = [0];
            let read = (&mut &*from).read(&mut byte)?;
            line.extend_from_slice(&byte[..read]);
            if read == 0 {
                break;
            }
        }
        if line.is_empty() {
            return Err(io::Error::other("it sent nothing: another process is taking over already"));
        }
        let message: HandoverMessage = serde_json::from_slice(&line)?;
        Self::from_message(message, sockets)
    }

    fn from_message(message: HandoverMessage, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let HandoverMessage { version, listen, admin } = message;
        if version != VERSION {
            return Err(io::Error::other(format!("it uses version {version}, this process {VERSION}")));
        }
        if sockets.len() != listen.len() + usize::from(admin.is_some()) {
            return Err(io::Error::other("the number of sockets differs from the number of names"));
        }
        let mut sockets = sockets.into_iter().map(TcpListener::from);
        let listeners = listen.into_iter().zip(&mut sockets);
        let listeners = listeners.map(|(name, socket)| Listener::from_std(name, socket)).collect();
        let admin = admin.zip(sockets.next()).map(|(name, socket)| Listener::from_std(name, socket));
        Ok(Self { listeners, admin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(name: &str) -> Listener {
        Listener::from_std(name.to_owned(), TcpListener::bind("127.0.0.1:0").expect("a socket"))
    }

    #[test]
    fn sockets_arrive_with_their_names() {
        let (old, new) = UnixStream::pair().expect("a pair");
        let sent =
            ListeningSockets { listeners: vec![listener("a"), listener("b")], admin: Some(listener("c")) };
        sent.send(&old).expect("sent");
        let received = ListeningSockets::receive(&new).expect("received");
        let look = |sockets: &ListeningSockets| -> Vec<_> {
            sockets.iter().map(|listener| (listener.name().to_owned(), listener.address())).collect()
        };
        assert_eq!(look(&received), look(&sent));
    }

    #[test]
    fn rejects_other_versions_and_wrong_counts() {
        let message = |version, listen| HandoverMessage { version, listen, admin: None };
        assert!(ListeningSockets::from_message(message(VERSION, vec![]), vec![]).is_ok());
        assert!(ListeningSockets::from_message(message(VERSION + 1, vec![]), vec![]).is_err());
        assert!(ListeningSockets::from_message(message(VERSION, vec!["a".into()]), vec![]).is_err());
    }

    #[test]
    fn closed_connection_is_an_error() {
        let (old, new) = UnixStream::pair().expect("a pair");
        drop(old);
        assert!(ListeningSockets::receive(&new).is_err());
    }
}
