//! The body of a response on its way to a client. It counts as in flight until its end, and is subject to
//! the idle timeout.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::message::{CLIENT_DELAY, StreamedUpload};
use crate::body::{BodyError, StreamedServiceBody};
use crate::call::CallError;
use crate::config;
use crate::endpoints::{EndpointLease, RequestVerdict};

/// The error of a body that exceeded the idle timeout.
#[derive(Debug, thiserror::Error)]
#[error("the response stalled for {0} (the service's `idle_timeout`)")]
pub(super) struct IdleTimeoutError(pub(super) config::DurationConfig);

/// Returns the idle timeout that was exceeded, if that is the cause of the error.
pub(super) fn exceeded_idle_timeout(error: &(dyn std::error::Error + 'static)) -> Option<Duration> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(IdleTimeoutError(time)) = error.downcast_ref() {
            return Some(time.0);
        }
        // `io::Error::source` skips the error that it wraps.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = held.map(|held| held as _).or_else(|| error.source());
    }
    None
}

/// A body with an endpoint lease and an idle timeout.
pub(super) struct LeasedBody {
    body: StreamedServiceBody,
    lease: Option<EndpointLease>,
    /// Whether a successful end is still to be reported.
    is_success_unreported: bool,
    idle_timeout: Duration,
    /// The idle timer, active only while a read is pending. Created on the first pending read: most responses
    /// arrive at once.
    timer: Option<Pin<Box<Sleep>>>,
    is_read_pending: bool,
    /// The time at which the last part was delivered, until the next read.
    delivered_at: Option<Instant>,
    /// The total time between the delivery of a part and the next read: the time that the client's pace
    /// takes.
    reader_delay: Duration,
    /// The request's own body, which may still be in transit.
    upload: Option<Arc<StreamedUpload>>,
}

impl LeasedBody {
    pub(super) fn new(
        body: StreamedServiceBody,
        lease: EndpointLease,
        is_success_unreported: bool,
        idle_timeout: Duration,
        upload: Option<Arc<StreamedUpload>>,
    ) -> Self {
        Self {
            body,
            lease: Some(lease),
            is_success_unreported,
            idle_timeout,
            timer: None,
            is_read_pending: false,
            delivered_at: None,
            reader_delay: Duration::ZERO,
            upload,
        }
    }

    /// Ends the exchange with a verdict on the endpoint.
    fn end_exchange(&mut self, verdict: RequestVerdict) {
        if let Some(lease) = self.lease.take()
            && (self.is_success_unreported || verdict != RequestVerdict::Success)
        {
            lease.record_outcome(verdict);
        }
    }

    /// Completes when the idle timeout has expired. Progress of the upload postpones it.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_read_pending {
            self.is_read_pending = true;
            self.set_timer(Instant::now() + self.idle_timeout);
        }
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(context));
            }
            match self.upload.as_ref().map(|upload| upload.snapshot()) {
                Some(glance)
                    if glance.end.is_none() && glance.last_progress.elapsed() < self.idle_timeout =>
                {
                    self.set_timer(glance.last_progress + self.idle_timeout);
                }
                _ => return Poll::Ready(()),
            }
        }
    }

    fn set_timer(&mut self, end: Instant) {
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(end),
            None => self.timer = Some(Box::pin(sleep_until(end))),
        }
    }

    /// Whether the client may have caused an error of the body, by its request or by slow reading.
    fn is_client_fault(&self) -> bool {
        self.reader_delay >= CLIENT_DELAY
            || self.upload.as_ref().is_some_and(|upload| upload.is_client_fault())
    }

    /// Ends the exchange after the idle timeout. Returns the error: that of the client, if the service waits
    /// for more of its upload.
    fn end_idle_exchange(&mut self) -> BodyError {
        let snapshot = self.upload.as_ref().map(|upload| upload.snapshot());
        let waits_for_client = snapshot
            .is_some_and(|upload_snapshot| upload_snapshot.is_awaited && upload_snapshot.end.is_none());
        self.body = crate::body::empty(); // Drops the old body, which cancels the exchange.
        let timeout = config::DurationConfig(self.idle_timeout);
        if waits_for_client {
            drop(self.lease.take());
            return CallError::Stalled { timeout }.into();
        }
        self.end_exchange(RequestVerdict::Failure);
        IdleTimeoutError(timeout).into()
    }
}

impl http_body::Body for LeasedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(at) = this.delivered_at.take() {
            this.reader_delay += at.elapsed();
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending => {
                ready!(this.poll_idle(context));
                Poll::Ready(Some(Err(this.end_idle_exchange())))
            }
            Poll::Ready(frame) => {
                this.is_read_pending = false;
                match &frame {
                    // The usual small response ends here, and needs no clock.
                    Some(Ok(_)) if this.body.is_end_stream() => {}
                    Some(Ok(_)) => this.delivered_at = Some(Instant::now()),
                    Some(Err(_)) if this.is_client_fault() => drop(this.lease.take()),
                    Some(Err(_)) => this.end_exchange(RequestVerdict::Failure),
                    None => this.end_exchange(RequestVerdict::Success),
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LeasedBody {
    fn drop(&mut self) {
        // Readers may skip the final poll if `is_end_stream` is already true.
        if self.body.is_end_stream() {
            self.end_exchange(RequestVerdict::Success);
        }
    }
}
