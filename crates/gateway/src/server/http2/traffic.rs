//! Counts of the traffic on an HTTP/2 connection, updated by its task and by those of its requests.
//!
//! Frames without content cost a client a few bytes and the gateway more: PING, SETTINGS, PRIORITY,
//! WINDOW_UPDATE, DATA without data, frames of unknown types. So the bytes received are compared with the
//! useful ones, as nginx does; SETTINGS count as more (`frames.rs`). A client that cancels requests as soon
//! as they have started also causes wasted work (CVE-2023-44487, counted as Envoy does).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frames::ScannedFrames;
use super::unread_frames::UnreadFrames;
use crate::limits::client_limiter::{AnswerPermit, LimitReached, RequestPermit};

/// The weight of the frames that are read before other connections get a turn: 32 KiB of DATA, or 4 KiB of
/// heads.
pub(super) const TURN_WEIGHT: u64 = 32 << 10;
/// The number of useless bytes that are tolerated, and the fraction of all bytes that must be useful: one in
/// this many.
const MAX_USELESS_BYTES: u64 = 128 << 10;
const USEFUL_DIVISOR: u64 = 8;
/// The number of useful bytes that a request counts as: an eighth of the largest head.
const REQUEST_BYTES: u64 = 8 << 10;
/// A request that is cancelled within this time was wasted, and the number of those that is tolerated if they
/// outnumber the answered requests.
const PREMATURE_RESET: Duration = Duration::from_secs(1);
const MAX_PREMATURE: u64 = 200;
/// The estimated number of bytes that the table of fields may keep. Above a third of it, the connection takes
/// no more requests: those that its client sends before it learns so must fit as well, a hundred with 16 KiB
/// each.
pub(super) const MAX_RETAINED: u64 = 3 << 20;
/// The estimated number of bytes that unread DATA frames may keep. Above half of it, the connection takes no
/// more requests.
const MAX_UNREAD: u64 = 32 << 20;

/// The counts of one connection.
#[derive(Debug, Default)]
pub(in crate::server) struct FrameCounts {
    /// The weight of the frames that were read in this turn, and the cost of all.
    turn_weight: AtomicU64,
    read_cost: AtomicU64,
    /// The number of useful bytes, including those that requests count as.
    useful_bytes: AtomicU64,
    started_requests: AtomicU64,
    in_flight: AtomicU64,
    answered_requests: AtomicU64,
    premature_resets: AtomicU64,
    /// The estimated number of bytes that h2's table of fields keeps: see `field_blocks.rs`.
    retained_bytes: AtomicU64,
    /// The DATA frames that h2 keeps, and the estimate of their bytes at the last count.
    unread_frames: Mutex<UnreadFrames>,
    unread_bytes: AtomicU64,
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameCountSnapshot {
    pub(super) read_cost: u64,
    pub(super) started_requests: u64,
    pub(super) in_flight: u64,
}

/// A guard that counts a request as in flight.
#[derive(Debug)]
pub(super) struct RequestGuard {
    traffic: Arc<FrameCounts>,
    started_at: Instant,
    permit: Option<RequestPermit>,
}

impl FrameCounts {
    /// Starts a turn of the connection's task.
    pub(super) fn begin_turn(&self) {
        self.turn_weight.store(0, Relaxed);
    }

    /// The weight of the frames that may still be read in this turn. `None` ends the turn.
    pub(in crate::server) fn remaining_turn(&self) -> Option<u64> {
        TURN_WEIGHT.checked_sub(self.turn_weight.load(Relaxed)).filter(|room| *room > 0)
    }

    /// Counts frames that were read.
    pub(in crate::server) fn note_read(&self, scanned: ScannedFrames) {
        self.turn_weight.fetch_add(scanned.weight, Relaxed);
        self.read_cost.fetch_add(scanned.cost, Relaxed);
        self.retained_bytes.store(scanned.retained_bytes, Relaxed);
        if !scanned.data_frames.is_empty() {
            self.unread_frames().add_arrived(scanned.data_frames);
        }
    }

    /// The DATA frames that h2 keeps.
    pub(super) fn unread_frames(&self) -> MutexGuard<'_, UnreadFrames> {
        self.unread_frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the DATA frames that h2 keeps, after requests have been accepted.
    pub(super) fn count_unread(&self) {
        let unread_bytes = self.unread_frames().count_frames();
        self.unread_bytes.store(unread_bytes, Relaxed);
    }

    /// Counts bytes of a body that were received or sent.
    pub(super) fn note_useful(&self, bytes: usize) {
        self.useful_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a request that starts.
    pub(super) fn begin_request(self: &Arc<Self>, permit: Option<RequestPermit>) -> RequestGuard {
        self.started_requests.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.useful_bytes.fetch_add(REQUEST_BYTES, Relaxed);
        RequestGuard { traffic: Arc::clone(self), started_at: Instant::now(), permit }
    }

    pub(super) fn snapshot(&self) -> FrameCountSnapshot {
        let [read, begun, under_way] =
            [&self.read_cost, &self.started_requests, &self.in_flight].map(|count| count.load(Relaxed));
        FrameCountSnapshot { read_cost: read, started_requests: begun, in_flight: under_way }
    }

    /// Whether the connection should end for the memory that its table of fields or its unread frames keep.
    pub(super) fn exceeds_memory(&self) -> bool {
        self.retained_bytes.load(Relaxed) > MAX_RETAINED / 3
            || self.unread_bytes.load(Relaxed) > MAX_UNREAD / 2
    }

    /// Whether the traffic amounts to a flood.
    pub(super) fn is_flood(&self) -> bool {
        let premature = self.premature_resets.load(Relaxed);
        self.read_cost.load(Relaxed) / USEFUL_DIVISOR > self.useful_bytes.load(Relaxed) + MAX_USELESS_BYTES
            || (premature > MAX_PREMATURE && premature > self.answered_requests.load(Relaxed))
            || self.retained_bytes.load(Relaxed) > MAX_RETAINED
            || self.unread_bytes.load(Relaxed) > MAX_UNREAD
    }
}

impl RequestGuard {
    pub(super) fn traffic(&self) -> &FrameCounts {
        &self.traffic
    }

    /// Counts an answer of at least this many bytes. Returns `None` if no limits apply.
    pub(super) fn count_answer(&self, bytes: u64) -> Result<Option<AnswerPermit>, LimitReached> {
        self.permit.as_ref().map(|permit| permit.reserve_answer(bytes)).transpose()
    }

    /// Counts the request as completely answered.
    pub(super) fn note_answered(&self) {
        self.traffic.answered_requests.fetch_add(1, Relaxed);
    }

    /// Counts the request as cancelled by the client.
    pub(super) fn note_reset(&self) {
        if self.started_at.elapsed() < PREMATURE_RESET {
            self.traffic.premature_resets.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.traffic.in_flight.fetch_sub(1, Relaxed);
    }
}
