//! The timeouts of an exchange.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::message::{End, Upload};
use crate::deadline::by;
use crate::error::Waited;
use crate::service::Service;

/// The timers of one exchange, from its start to its last attempt.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    begun: Instant,
    /// The start of the current attempt.
    attempt: Instant,
    /// The deadline of the whole request.
    deadline: Instant,
    whole: Duration,
    first_byte: Option<Duration>,
    idle: Duration,
}

/// The timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// A timeout of the service: the awaited event and the duration.
    Service(Waited, Duration),
    /// The deadline of the whole request.
    Deadline(Duration),
    /// The idle timeout of the client's upload.
    Client(Duration),
}

impl Clock {
    pub(super) fn new(service: &Service, deadline: std::time::Instant) -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            attempt: now,
            deadline: deadline.into(),
            whole: service.timeout(),
            first_byte: service.first_byte_timeout,
            idle: service.idle_timeout,
        }
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// The start of the current attempt.
    pub(super) fn attempt(&self) -> Instant {
        self.attempt
    }

    /// Starts another attempt; returns `false` if there is no time for it.
    pub(super) fn again(&mut self) -> bool {
        self.attempt = Instant::now();
        self.attempt < self.deadline.min(self.begun + self.whole)
    }

    /// Waits for a response to begin.
    pub(super) async fn answer<F: Future + ?Sized>(
        &self,
        upload: Option<&Upload>,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, Late> {
        loop {
            let (end, _) = self.end(upload);
            if let Some(value) = by(end.into(), future.as_mut()).await {
                return Ok(value);
            }
            // Progress of an upload meanwhile postpones the end.
            let (end, late) = self.end(upload);
            if end <= Instant::now() {
                return Err(late);
            }
        }
    }

    /// Waits for a future within the service's timeout, which covers all attempts.
    pub(super) async fn whole<F: Future>(&self, future: Pin<&mut F>) -> Result<F::Output, Late> {
        let (end, late) =
            self.earliest([(self.begun + self.whole, Late::Service(Waited::Answer, self.whole))]);
        by(end.into(), future).await.ok_or(late)
    }

    /// Returns the earliest time at which a timeout can expire, and that timeout.
    fn end(&self, upload: Option<&Upload>) -> (Instant, Late) {
        let glance = upload.map(Upload::glance);
        let (whole, first) = match &glance {
            // The service has had the complete request since the end of the upload.
            Some(glance) => match glance.end {
                Some(End::Done(at)) => (self.begun.max(at), self.attempt.max(at)),
                Some(End::Broken) => (self.begun, self.attempt),
                None => {
                    let late = match glance.awaited {
                        true => Late::Client(self.idle),
                        false => Late::Service(Waited::More, self.idle),
                    };
                    // Wake up early enough to notice the end of the upload before any later timeout can
                    // expire.
                    let again = Instant::now() + self.first_byte.unwrap_or(self.whole).min(self.whole);
                    return self
                        .earliest([(glance.moved.max(self.attempt) + self.idle, late), (again, late)]);
                }
            },
            None => (self.begun, self.attempt),
        };
        let whole = (whole + self.whole, Late::Service(Waited::Answer, self.whole));
        match self.first_byte {
            Some(time) => self.earliest([whole, (first + time, Late::Service(Waited::FirstByte, time))]),
            None => self.earliest([whole]),
        }
    }

    fn earliest<const N: usize>(&self, ends: [(Instant, Late); N]) -> (Instant, Late) {
        let deadline = (self.deadline, Late::Deadline(self.deadline.saturating_duration_since(self.begun)));
        ends.into_iter().fold(deadline, |first, next| if next.0 < first.0 { next } else { first })
    }
}
