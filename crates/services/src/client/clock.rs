//! The timeouts of an exchange.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::message::{StreamedUpload, UploadEnd};
use crate::call::AwaitedEvent;
use crate::coop::timeout_at;
use crate::service::UpstreamService;

/// The timers of one exchange, from its start to its last attempt.
#[derive(Clone, Copy)]
pub(super) struct ExchangeTimers {
    started: Instant,
    /// The start of the current attempt.
    attempt_start: Instant,
    /// The deadline of the whole request.
    deadline: Instant,
    total_timeout: Duration,
    first_byte_timeout: Option<Duration>,
    idle_timeout: Duration,
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
            started: now,
            attempt_start: now,
            deadline: deadline.into(),
            total_timeout: service.timeout(),
            first_byte_timeout: service.first_byte_timeout,
            idle_timeout: service.idle_timeout,
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// The start of the current attempt.
    pub(super) fn attempt_start(&self) -> Instant {
        self.attempt_start
    }

    /// Starts another attempt; returns `false` if there is no time for it.
    pub(super) fn start_attempt(&mut self) -> bool {
        self.attempt_start = Instant::now();
        self.attempt_start < self.deadline.min(self.started + self.total_timeout)
    }

    /// Waits for a response to begin.
    pub(super) async fn wait_for_response<F: Future + ?Sized>(
        &self,
        upload: Option<&StreamedUpload>,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, ExpiredTimeout> {
        loop {
            let (end, _) = self.next_timeout(upload);
            if let Some(value) = timeout_at(end.into(), future.as_mut()).await {
                return Ok(value);
            }
            // Progress of an upload meanwhile postpones the end.
            let (end, timeout) = self.next_timeout(upload);
            if end <= Instant::now() {
                return Err(timeout);
            }
        }
    }

    /// Waits for a future within the service's timeout, which covers all attempts.
    pub(super) async fn within_total_timeout<F: Future>(
        &self,
        future: Pin<&mut F>,
    ) -> Result<F::Output, ExpiredTimeout> {
        let (end, timeout) = self.earliest_timeout([(
            self.started + self.total_timeout,
            ExpiredTimeout::Service(AwaitedEvent::CompleteResponse, self.total_timeout),
        )]);
        timeout_at(end.into(), future).await.ok_or(timeout)
    }

    /// Returns the earliest time at which a timeout can expire, and that timeout.
    fn next_timeout(&self, upload: Option<&StreamedUpload>) -> (Instant, ExpiredTimeout) {
        let upload_snapshot = upload.map(StreamedUpload::snapshot);
        let (whole, first) = match &upload_snapshot {
            // The service has had the complete request since the end of the upload.
            Some(glance) => match glance.end {
                Some(UploadEnd::Done(at)) => (self.started.max(at), self.attempt_start.max(at)),
                Some(UploadEnd::Broken) => (self.started, self.attempt_start),
                None => {
                    let timeout = match glance.is_awaited {
                        true => ExpiredTimeout::Client(self.idle_timeout),
                        false => ExpiredTimeout::Service(AwaitedEvent::Progress, self.idle_timeout),
                    };
                    // Wake up early enough to notice the end of the upload before any later timeout can
                    // expire.
                    let again = Instant::now()
                        + self.first_byte_timeout.unwrap_or(self.total_timeout).min(self.total_timeout);
                    return self.earliest_timeout([
                        (glance.last_progress.max(self.attempt_start) + self.idle_timeout, timeout),
                        (again, timeout),
                    ]);
                }
            },
            None => (self.started, self.attempt_start),
        };
        let whole = (
            whole + self.total_timeout,
            ExpiredTimeout::Service(AwaitedEvent::CompleteResponse, self.total_timeout),
        );
        match self.first_byte_timeout {
            Some(time) => self.earliest_timeout([
                whole,
                (first + time, ExpiredTimeout::Service(AwaitedEvent::FirstByte, time)),
            ]),
            None => self.earliest_timeout([whole]),
        }
    }

    fn earliest_timeout<const N: usize>(
        &self,
        ends: [(Instant, ExpiredTimeout); N],
    ) -> (Instant, ExpiredTimeout) {
        let deadline =
            (self.deadline, ExpiredTimeout::Deadline(self.deadline.saturating_duration_since(self.started)));
        ends.into_iter().fold(deadline, |first, next| if next.0 < first.0 { next } else { first })
    }
}
