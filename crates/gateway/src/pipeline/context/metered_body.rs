//! Request bodies that are counted and bounded: their size, their rate, and the bytes that the gateway holds.

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body as _, Frame, SizeHint};
use services::StreamedServiceBody;
use services::coop::end_poll;
use services::headers::sanitize_trailers;
use services::http1::FramingError;

use crate::config::RouteLimitsConfig;
use crate::http_semantics::client::ClientInfo;
use crate::limits::client_limiter::{BodyPermit, LimitReached};
use crate::limits::stall_timer::StallTimer;

/// A counter of received bytes.
#[derive(Debug, Default)]
pub(super) struct ByteMeter {
    bytes_received: AtomicU64,
    fault: OnceLock<BodyFault>,
    response_started: AtomicBool,
    /// The permit for the bytes that the route holds; not set for a short body.
    body_permit: OnceLock<Option<BodyPermit>>,
}

/// The reason why a request's body is incomplete. The client is at fault, whatever the handler makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    TooSlow,
    TooLarge,
    /// The gateway holds too many bytes of request bodies already.
    MemoryLimit,
    /// The body's end can't be determined.
    Malformed(FramingError),
    /// The connection or the stream ended early.
    Incomplete,
}

/// A request body that is counted and bounded.
pub(super) struct MeteredBody {
    body: StreamedServiceBody,
    meter: Arc<ByteMeter>,
    client: ClientInfo,
    limit: u64,
    /// The number of bytes that the route holds at most before the response begins.
    held_limit: u64,
    /// The minimum rate in bytes a second.
    rate: u64,
    stall: StallTimer,
    /// The operator's own header field for the client's address. A trailer must not have this name.
    address_field: Option<HeaderName>,
    /// Whether other tasks run before more of the body is read.
    must_yield: bool,
}

/// The longest pause within a request's body: longer than a phone's handover between two cells.
const BODY_STALL: Duration = Duration::from_secs(30);

/// The length up to which a body is not counted among the bytes that are held, and the unit in which longer
/// ones are.
const BODY_PERMIT_UNIT: u64 = 16 << 10;

#[derive(Debug, thiserror::Error)]
#[error("the body came too slowly")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("the body is larger than {0} bytes")]
struct TooLarge(u64);

impl http_body::Body for MeteredBody {
    type Data = Bytes;
    type Error = services::body::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if mem::take(&mut self.must_yield) {
            end_poll(context);
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(context).map_err(|error| {
            self.meter.set_fault(BodyFault::from_error(&*error));
            error
        })?;
        if polled.is_pending() && self.is_stalled(context) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        let Some(mut frame) = ready!(polled) else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_mut() {
            sanitize_trailers(trailers, self.address_field.as_ref());
        }
        self.stall.end_stall();
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let received = self.meter.bytes_received.fetch_add(length, Relaxed) + length;
        if received > self.limit {
            self.meter.set_fault(BodyFault::TooLarge);
            return Poll::Ready(Some(Err(TooLarge(self.limit).into())));
        }
        if received > BODY_PERMIT_UNIT {
            self.hold_bytes(received)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl BodyFault {
    fn from_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        match error.downcast_ref() {
            Some(wrong @ (FramingError::Chunk | FramingError::Trailers)) => Self::Malformed(*wrong),
            Some(FramingError::Incomplete) | None => Self::Incomplete,
        }
    }
}

impl ByteMeter {
    /// The number of bytes received.
    pub(super) fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Relaxed)
    }

    /// The fault in the part of the body that was read, if any.
    pub(super) fn fault(&self) -> Option<BodyFault> {
        self.fault.get().copied()
    }

    /// Notes a fault. Only the first is stored, since it causes those that follow.
    fn set_fault(&self, fault: BodyFault) {
        let _ = self.fault.set(fault);
    }

    /// Notes that the response has begun. The body is no longer held for it.
    pub(super) fn note_response_started(&self) {
        self.response_started.store(true, Relaxed);
        if let Some(Some(permit)) = self.body_permit.get() {
            permit.release();
        }
    }
}

impl MeteredBody {
    /// Counts the bytes of `body` in `meter`, and bounds it by `limits`. At most `held_limit` bytes of it are
    /// held before the response begins.
    pub(super) fn new(
        body: StreamedServiceBody,
        meter: Arc<ByteMeter>,
        client: ClientInfo,
        (limits, held_limit): (&RouteLimitsConfig, u64),
        address_field: Option<&HeaderName>,
    ) -> Self {
        Self {
            body,
            meter,
            client,
            limit: limits.request_body.0,
            held_limit,
            rate: limits.min_request_body_rate.0,
            stall: StallTimer::default(),
            address_field: address_field.cloned(),
            must_yield: false,
        }
    }

    /// Counts the bytes that the route holds, of those that it has received.
    fn hold_bytes(&mut self, received: u64) -> Result<(), LimitReached> {
        let bytes = received.min(self.held_limit).next_multiple_of(BODY_PERMIT_UNIT);
        if bytes == 0 || self.meter.response_started.load(Relaxed) {
            return Ok(());
        }
        let permit = self.meter.body_permit.get_or_init(|| self.client.body_permit());
        let held = permit.as_ref().map_or(Ok(()), |permit| permit.reserve_total(bytes));
        self.must_yield = permit.as_ref().is_some_and(BodyPermit::is_under_pressure);
        held.inspect_err(|_| self.meter.set_fault(BodyFault::MemoryLimit))
    }

    /// Whether the body arrives too slowly. Once the response has begun, the client may take its time: the
    /// two sides may then exchange messages.
    fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let received = self.meter.bytes_received.load(Relaxed);
        let is_stuck = !self.meter.response_started.load(Relaxed)
            && self.stall.is_over_at_rate(received, self.rate, BODY_STALL, context);
        if is_stuck {
            self.meter.set_fault(BodyFault::TooSlow);
        }
        is_stuck
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.client.note_unread();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use tokio::task::coop::has_budget_remaining;

    use super::*;
    use crate::config::ConnectionsConfig;

    #[tokio::test]
    async fn others_run_after_each_read_from_a_client_that_sends_many_long_bodies() {
        let client = ClientInfo::with_limits(ConnectionsConfig::default());
        let piece = || Ok::<_, services::body::BodyError>(Frame::data(Bytes::from(vec![b'x'; 32 << 10])));
        let mut body = MeteredBody {
            body: StreamBody::new(stream::iter([(); 4].map(|()| piece()))).boxed_unsync(),
            meter: Arc::default(),
            client: client.clone(),
            limit: u64::MAX,
            held_limit: u64::MAX,
            rate: 1,
            stall: StallTimer::default(),
            address_field: None,
            must_yield: false,
        };
        let others = client.body_permit().unwrap();
        let mut has_read = || body.frame().now_or_never().is_some();
        assert!(has_read() && has_read(), "a single long body is read without pauses");
        others.reserve_total(5 << 20).unwrap();
        assert!(has_read() && has_budget_remaining());
        assert!(!has_read());
        assert!(!has_budget_remaining(), "nothing else is read in this poll");
        assert!(has_read());
    }
}
