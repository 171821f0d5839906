//! The timeouts of an exchange.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::message::{StreamedUpload, UploadEnd};
use crate::deadline::by;
use crate::error::AwaitedEvent;
use crate::service::UpstreamService;

/// The timers of one exchange, from its start to its last attempt.
#[derive(Clone, Copy)]
pub(super) struct ExchangeTimers {
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
pub(super) enum ExpiredTimeout {
    /// A timeout of the service: the awaited event and the duration.
    Service(AwaitedEvent, Duration),
    /// The deadline of the whole request.
    Deadline(Duration),
    /// The idle timeout of the client's upload.
    Client(Duration),
}

impl ExchangeTimers {
    pub(super) fn new(service: &UpstreamService, deadline: std::time::Instant) -> Self {
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
        upload: Option<&StreamedUpload>,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, ExpiredTimeout> {
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
    pub(super) async fn whole<F: Future>(&self, future: Pin<&mut F>) -> Result<F::Output, ExpiredTimeout> {
        let (end, late) = self
            .earliest([(self.begun + self.whole, ExpiredTimeout::Service(AwaitedEvent::Answer, self.whole))]);
        by(end.into(), future).await.ok_or(late)
    }

    /// Returns the earliest time at which a timeout can expire, and that timeout.
    fn end(&self, upload: Option<&StreamedUpload>) -> (Instant, ExpiredTimeout) {
        let glance = upload.map(StreamedUpload::glance);
        let (whole, first) = match &glance {
            // The service has had the complete request since the end of the upload.
            Some(glance) => match glance.end {
                Some(UploadEnd::Done(at)) => (self.begun.max(at), self.attempt.max(at)),
                Some(UploadEnd::Broken) => (self.begun, self.attempt),
                None => {
                    let late = match glance.awaited {
                        true => ExpiredTimeout::Client(self.idle),
                        false => ExpiredTimeout::Service(AwaitedEvent::More, self.idle),
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
        let whole = (whole + self.whole, ExpiredTimeout::Service(AwaitedEvent::Answer, self.whole));
        match self.first_byte {
            Some(time) => {
                self.earliest([whole, (first + time, ExpiredTimeout::Service(AwaitedEvent::FirstByte, time))])
            }
            None => self.earliest([whole]),
        }
    }

    fn earliest<const N: usize>(&self, ends: [(Instant, ExpiredTimeout); N]) -> (Instant, ExpiredTimeout) {
        let deadline =
            (self.deadline, ExpiredTimeout::Deadline(self.deadline.saturating_duration_since(self.begun)));
        ends.into_iter().fold(deadline, |first, next| if next.0 < first.0 { next } else { first })
    }
}
