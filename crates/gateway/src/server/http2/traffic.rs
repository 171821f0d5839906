//! What goes over a connection of HTTP/2, counted: by its task and by those of its requests.
//!
//! Frames that carry nothing cost a client a few bytes and the gateway more: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, DATA
//! without data, frames of no known kind. So what comes is compared with what it is good for, as nginx does it. And who takes
//! requests back as soon as they have begun has the gateway work for nothing (CVE-2023-44487, as Envoy counts it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::server::limiter::RequestPermit;

/// How much is read before others have their turn.
const TURN: u64 = 64 << 10;
/// How much may come that is good for nothing, and what part of all that comes has to be good for something.
const USELESS: u64 = 128 << 10;
const PART: u64 = 8;
/// What a request counts as: an eighth of the largest head.
const REQUEST: u64 = 8 << 10;
/// A request that is taken back within this time has begun for nothing; and how many of those may be, if they are more than
/// those that were answered.
const PREMATURE: Duration = Duration::from_secs(1);
const MAX_PREMATURE: u64 = 200;

/// The counts of one connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Traffic {
    /// Bytes that were read in this turn, and in all.
    turn: AtomicU64,
    read: AtomicU64,
    /// Bytes that were good for something, requests among them.
    useful: AtomicU64,
    begun: AtomicU64,
    under_way: AtomicU64,
    answered: AtomicU64,
    premature: AtomicU64,
}

/// What has happened up to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) read: u64,
    pub(super) begun: u64,
    pub(super) under_way: u64,
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard {
    traffic: Arc<Traffic>,
    begun: Instant,
    _permit: Option<RequestPermit>,
}

impl Traffic {
    /// The connection's task has its turn.
    pub(super) fn begin_turn(&self) {
        self.turn.store(0, Relaxed);
    }

    /// Whether more may be read before others have their turn. Who is refused has had its turn.
    pub(in crate::server) fn may_read(&self) -> bool {
        let may = self.turn.load(Relaxed) < TURN;
        if !may {
            self.turn.store(0, Relaxed);
        }
        may
    }

    /// So many bytes were read.
    pub(in crate::server) fn note_read(&self, bytes: usize) {
        self.turn.fetch_add(bytes as u64, Relaxed);
        self.read.fetch_add(bytes as u64, Relaxed);
    }

    /// So many bytes of a body came or went.
    pub(super) fn note_useful(&self, bytes: usize) {
        self.useful.fetch_add(bytes as u64, Relaxed);
    }

    /// A request begins.
    pub(super) fn begin_request(self: &Arc<Self>, permit: Option<RequestPermit>) -> RequestGuard {
        self.begun.fetch_add(1, Relaxed);
        self.under_way.fetch_add(1, Relaxed);
        self.useful.fetch_add(REQUEST, Relaxed);
        RequestGuard { traffic: Arc::clone(self), begun: Instant::now(), _permit: permit }
    }

    pub(super) fn seen(&self) -> Seen {
        let [read, begun, under_way] =
            [&self.read, &self.begun, &self.under_way].map(|count| count.load(Relaxed));
        Seen { read, begun, under_way }
    }

    /// Whether what comes is meant to wear the gateway out.
    pub(super) fn is_flood(&self) -> bool {
        let premature = self.premature.load(Relaxed);
        self.read.load(Relaxed) / PART > self.useful.load(Relaxed) + USELESS
            || (premature > MAX_PREMATURE && premature > self.answered.load(Relaxed))
    }
}

impl RequestGuard {
    pub(super) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The client has all of the answer.
    pub(super) fn note_answered(&self) {
        self.traffic.answered.fetch_add(1, Relaxed);
    }

    /// The client has taken its request back.
    pub(super) fn note_reset(&self) {
        if self.begun.elapsed() < PREMATURE {
            self.traffic.premature.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.traffic.under_way.fetch_sub(1, Relaxed);
    }
}
