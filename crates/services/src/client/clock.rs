//! How long an exchange may take, and which of its times is up first.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::message::{End, Upload};
use crate::deadline::by;
use crate::error::Waited;
use crate::service::Service;

/// The times of one exchange, from its beginning to its last attempt.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    begun: Instant,
    /// When the attempt that is under way began.
    attempt: Instant,
    /// When the whole request's time is up.
    deadline: Instant,
    whole: Duration,
    first_byte: Option<Duration>,
    idle: Duration,
}

/// The time that was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// What the service is to blame for, and how long it was waited for.
    Service(Waited, Duration),
    /// The request's own time.
    Deadline(Duration),
    /// The client did not go on sending.
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

    /// When the attempt that is under way began.
    pub(super) fn attempt(&self) -> Instant {
        self.attempt
    }

    /// Another attempt begins; `false` if there is no time for it.
    pub(super) fn again(&mut self) -> bool {
        self.attempt = Instant::now();
        self.attempt < self.deadline.min(self.begun + self.whole)
    }

    /// Waits for an answer to begin.
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
            // An upload may have moved meanwhile, which moves the end.
            let (end, late) = self.end(upload);
            if end <= Instant::now() {
                return Err(late);
            }
        }
    }

    /// Waits for what has to come within the whole time, whatever the attempt.
    pub(super) async fn whole<F: Future>(&self, future: Pin<&mut F>) -> Result<F::Output, Late> {
        let (end, late) =
            self.earliest([(self.begun + self.whole, Late::Service(Waited::Answer, self.whole))]);
        by(end.into(), future).await.ok_or(late)
    }

    /// The next time that may be up.
    fn end(&self, upload: Option<&Upload>) -> (Instant, Late) {
        let glance = upload.map(Upload::glance);
        let (whole, first) = match &glance {
            // The service has had all of the request since then.
            Some(glance) => match glance.end {
                Some(End::Done(at)) => (self.begun.max(at), self.attempt.max(at)),
                Some(End::Broken) => (self.begun, self.attempt),
                None => {
                    let late = match glance.awaited {
                        true => Late::Client(self.idle),
                        false => Late::Service(Waited::More, self.idle),
                    };
                    // Looked at again before any other time could be up once the upload ends.
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
