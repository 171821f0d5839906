//! Streaming of long responses of parts that are copied unchanged into the aggregate's response.
//!
//! The beginning is buffered. A response that is complete by then, as most are, is handled like all others,
//! so that invalid JSON is an error with a status. Of longer responses each piece is checked before it is
//! sent. If the JSON is invalid or incomplete, the aggregate's response is aborted.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use json::{JsonTree, PartialChecker, TreePieces};
use services::body::BodyError;
use services::coop::{ByteTurn, TURN_BYTES};
use services::{CallError, RequestBudget, RequestCall, ServiceRequest, ServiceSet, StreamedServiceBody};
use tokio::time::{Instant, timeout_at};

use crate::plan::PartPlan;
use crate::problem::PartFailureReason;

/// The number of bytes to buffer.
pub(crate) const STREAM_BUFFER_BYTES: usize = 256 * 1024;

/// The beginning of a part's response.
pub(crate) enum PartStart {
    /// The complete response.
    Complete(services::ProgramResponse),
    /// A response that exceeds the buffer.
    Arriving(ArrivingResponse),
}

/// A long response that is still arriving.
pub(crate) struct ArrivingResponse {
    beginning: Option<Bytes>,
    body: StreamedServiceBody,
    /// Received data that has not been checked yet.
    piece: Bytes,
    /// The number of bytes checked in this turn. A turn takes some tenths of a millisecond.
    turn_bytes: usize,
    checker: PartialChecker,
    budget: Arc<RequestBudget>,
}

/// A long response, which is taken by the writer of the aggregate's response.
#[derive(Debug)]
pub(crate) struct SharedArrivingResponse(Mutex<Option<ArrivingResponse>>);

impl std::fmt::Debug for ArrivingResponse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Long")
    }
}

impl SharedArrivingResponse {
    pub(crate) fn new(long: ArrivingResponse) -> Self {
        Self(Mutex::new(Some(long)))
    }

    pub(crate) fn take(&self) -> Option<ArrivingResponse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Makes a call, and buffers the beginning of its response.
pub(crate) async fn start_part(
    services: &ServiceSet,
    call: &RequestCall,
    part: &PartPlan,
    request: ServiceRequest,
) -> Result<PartStart, PartFailureReason> {
    let wrong = |error: CallError| PartFailureReason::Call(Arc::new(error));
    let _place = call.budget.acquire_permit().await;
    let until = Instant::now() + part.service.timeout();
    let started = services.start_streamed(call, &part.service, request).map_err(wrong)?;
    let response = started.await.map_err(wrong)?;
    let late = |_| {
        let timeout = services::DurationConfig(part.service.timeout());
        let (service, waited) =
            (part.service.name().clone(), services::client::AwaitedEvent::CompleteResponse);
        PartFailureReason::Call(Arc::new(CallError::Timeout { service, timeout, waited }))
    };
    let is_plain = response.status().is_success() && !response.headers().contains_key(CONTENT_ENCODING);
    if !is_plain {
        let program_response =
            timeout_at(until, services.finish_response(call, &part.service, response)).await.map_err(late)?;
        return Ok(PartStart::Complete(program_response.map_err(wrong)?));
    }
    timeout_at(until, buffer_beginning(call, part, response)).await.map_err(late)?
}

/// Buffers the beginning of a response.
async fn buffer_beginning(
    call: &RequestCall,
    part: &PartPlan,
    response: Response<StreamedServiceBody>,
) -> Result<PartStart, PartFailureReason> {
    let (head, mut body) = response.into_parts();
    let wrong = |error: CallError| PartFailureReason::Call(Arc::new(error));
    let (mut beginning, mut turn) = (BytesMut::new(), ByteTurn::default());
    while beginning.len() < STREAM_BUFFER_BYTES {
        let Some(frame) = body.frame().await else {
            let (status, headers) = (head.status, head.headers);
            return Ok(PartStart::Complete(services::ProgramResponse {
                status,
                headers,
                body: beginning.freeze(),
            }));
        };
        let frame = frame
            .map_err(|source| wrong(CallError::Broken { service: part.service.name().clone(), source }))?;
        let Ok(data) = frame.into_data() else { continue };
        call.budget.receive(data.len() as u64).map_err(wrong)?;
        turn.consume_bytes(data.len()).await;
        beginning.extend_from_slice(&data);
    }
    if beginning.starts_with(b"\xef\xbb\xbf") {
        let _ = beginning.split_to(3);
    }
    let mut checker = PartialChecker::default();
    // The last frame may be long.
    for step in beginning.chunks(TURN_BYTES) {
        checker.feed(step).map_err(PartFailureReason::NotJson)?;
        turn.consume_bytes(step.len()).await;
    }
    let budget = Arc::clone(&call.budget);
    let beginning = Some(beginning.freeze());
    Ok(PartStart::Arriving(ArrivingResponse {
        beginning,
        body,
        piece: Bytes::new(),
        turn_bytes: 0,
        checker,
        budget,
    }))
}

impl ArrivingResponse {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(beginning) = self.beginning.take() {
            // Other parts count as held by the response, see `record_held_memory`.
            self.budget.release_received();
            return Poll::Ready(Some(Ok(beginning)));
        }
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        while self.piece.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                self.turn_bytes = 0;
                return Poll::Pending;
            };
            let Some(frame) = frame else {
                return Poll::Ready(self.checker.finish().err().map(|error| Err(error.into())));
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => self.piece = piece,
                Ok(Err(_)) => continue,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            if !self.budget.take_received(self.piece.len() as u64) {
                return Poll::Ready(Some(Err(CallError::Limit("limit-received").into())));
            }
        }
        let step = self.piece.split_to(self.piece.len().min(TURN_BYTES - self.turn_bytes));
        self.turn_bytes += step.len();
        Poll::Ready(Some(match self.checker.feed(&step) {
            Ok(()) => Ok(step),
            Err(error) => Err(error.into()),
        }))
    }
}

/// A segment of a streamed response.
pub(crate) enum StreamSegment {
    Text(Bytes),
    /// A tree, and the length of its text.
    Tree(JsonTree, usize),
    Arriving(ArrivingResponse),
}

/// The body of a streamed response.
pub(crate) struct StreamedBody {
    segments: VecDeque<StreamSegment>,
    pieces: Option<TreePieces>,
}

impl StreamedBody {
    pub(crate) fn new_response(
        segments: Vec<StreamSegment>,
        status: StatusCode,
    ) -> Response<StreamedServiceBody> {
        let body = Self { segments: segments.into(), pieces: None };
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = status;
        response
    }
}

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(piece) = this.pieces.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            this.pieces = None;
            if let Some(StreamSegment::Arriving(long)) = this.segments.front_mut() {
                let polled = ready!(long.poll(context));
                match polled {
                    Some(Ok(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                    Some(Err(error)) => {
                        this.segments.clear();
                        return Poll::Ready(Some(Err(error)));
                    }
                    None => {}
                }
            }
            match this.segments.pop_front() {
                None => return Poll::Ready(None),
                Some(StreamSegment::Text(text)) => return Poll::Ready(Some(Ok(Frame::data(text)))),
                Some(StreamSegment::Tree(tree, length)) => this.pieces = Some(tree.pieces_with_len(length)),
                Some(StreamSegment::Arriving(_)) => {}
            }
        }
    }
}
