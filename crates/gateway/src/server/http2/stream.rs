//! A request over HTTP/2, from its handler to the last byte of its response.
//!
//! h2 is given no more of a body than the client's windows have room for. The rest stays in the body, where
//! it is counted, and the stream is reset if the client reads nothing for too long or reads too slowly.
//!
//! An answer that is complete waits in h2 until the client reads it. So each counts with its fields and with
//! what h2 may have of its body. The permit is part of the last bytes that h2 is given, and ends once h2 has
//! written them.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONTENT_LENGTH, DATE, HeaderValue};
use http::{HeaderMap, Response, response};
use http_body::{Body as _, Frame};
use rustix::time::{ClockId, clock_gettime};
use services::body::BodyError;
use services::coop::ByteTurn;
use services::headers::strip_hop_by_hop;

use super::MAX_SEND_BUFFER;
use super::traffic::RequestGuard;
use crate::http_semantics::unsent_bytes;
use crate::limits::client_limiter::{AnswerPermit, LimitReached};
use crate::limits::stall_timer::StallTimer;
use crate::pipeline::context::LoggedBody;
use crate::server::http1::{has_body, may_have_content};
use crate::server::{MIN_READ_RATE, WRITE_STALL_TIMEOUT};

/// The estimated number of bytes that an answer takes beside its fields and its body: the states of its
/// stream and its task, and the map of its fields.
const RESPONSE_OVERHEAD: u64 = 2 << 10;

/// A response that is being sent.
struct StreamSender<'a> {
    stream: SendStream<Bytes>,
    write_stall: StallTimer,
    bytes_sent: u64,
    request: &'a RequestGuard,
    /// The permit of the answer, and the bytes that it counts beside those of the body.
    permit: Option<AnswerPermit>,
    head_bytes: u64,
}

/// The reason a response was not sent to its end.
#[derive(Debug)]
enum StreamSendError {
    /// The client has reset the stream, or the connection has ended.
    Disconnected,
    /// The client reads nothing of it.
    WriteStalled,
    /// The response body failed.
    Body(BodyError),
}

impl From<h2::Error> for StreamSendError {
    fn from(_: h2::Error) -> Self {
        Self::Disconnected
    }
}

impl From<LimitReached> for StreamSendError {
    fn from(limit: LimitReached) -> Self {
        Self::Body(limit.into())
    }
}

/// Answers a request.
pub(super) async fn serve<F>(
    answering: Pin<Box<F>>,
    mut respond: SendResponse<Bytes>,
    is_head: bool,
    request: RequestGuard,
) where
    F: Future<Output = Response<LoggedBody>>,
{
    match answer_request(answering, &mut respond, is_head, &request).await {
        Ok(()) => request.note_answered(),
        Err(StreamSendError::Disconnected) => request.note_reset(),
        Err(failure) => {
            tracing::debug!(?failure, "an answer is broken off");
            respond.send_reset(failure.reset_reason());
        }
    }
}

async fn answer_request<F>(
    mut answering: Pin<Box<F>>,
    respond: &mut SendResponse<Bytes>,
    is_head: bool,
    request: &RequestGuard,
) -> Result<(), StreamSendError>
where
    F: Future<Output = Response<LoggedBody>>,
{
    let response = poll_fn(|context| match answering.as_mut().poll(context) {
        Poll::Ready(response) => Poll::Ready(Ok(response)),
        Poll::Pending => respond.poll_reset(context).map(|_| Err(StreamSendError::Disconnected)),
    });
    let response = response.await?;
    drop(answering);
    let (head, body) = response.into_parts();
    let has_body = has_body(head.status, is_head) && !body.is_end_stream();
    let mut head = complete_head(head, &body, has_body);
    let fields = RESPONSE_OVERHEAD + size_of_fields(head.headers());
    let length = if has_body { body.size_hint().exact().unwrap_or_default() } else { 0 };
    let permit = request.count_answer(fields + length.min(MAX_SEND_BUFFER as u64))?;
    if !has_body {
        drop(body);
        if let (Some(permit), Some(date)) = (permit, head.headers_mut().get_mut(DATE)) {
            unsent_bytes::attach_to_value(permit, date);
        }
        respond.send_response(head, true)?;
        return Ok(());
    }
    let stream = respond.send_response(head, false)?;
    let mut sender = StreamSender {
        stream,
        write_stall: StallTimer::default(),
        bytes_sent: 0,
        request,
        permit,
        head_bytes: fields,
    };
    sender.send_body(body).await
}

/// The size of fields as HTTP/2 counts them (RFC 9113, section 6.5.2).
fn size_of_fields(fields: &HeaderMap) -> u64 {
    fields.iter().map(|(name, value)| (name.as_str().len() + value.len() + 32) as u64).sum()
}

/// Completes the head: removes fields of HTTP/1.1 and adds those that every response has.
fn complete_head(mut head: response::Parts, body: &LoggedBody, has_body: bool) -> Response<()> {
    strip_hop_by_hop(&mut head.headers);
    if !may_have_content(head.status) {
        head.headers.remove(CONTENT_LENGTH);
    }
    if has_body && let Some(length) = body.size_hint().exact() {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    head.headers.entry(DATE).or_insert_with(date_header);
    Response::from_parts(head, ())
}

impl StreamSender<'_> {
    async fn send_body(&mut self, mut body: LoggedBody) -> Result<(), StreamSendError> {
        let mut turn = ByteTurn::default();
        loop {
            let frame = poll_fn(|context| self.poll_body(&mut body, context)).await?;
            // A body that is available and a window that is open never make the task wait, so it yields here.
            turn.consume_bytes(frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len)).await;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => {
                    let is_last = body.is_end_stream();
                    self.send_data(data, is_last).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                Some(Err(frame)) => return self.send_trailers(frame.into_trailers().unwrap_or_default()),
                None => return self.send_last(Bytes::new()),
            }
        }
    }

    /// Returns the next frame of the body, unless the client resets the stream first.
    fn poll_body(
        &mut self,
        body: &mut LoggedBody,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, StreamSendError>> {
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(StreamSendError::Body)),
            Poll::Pending => self.stream.poll_reset(context).map(|_| Err(StreamSendError::Disconnected)),
        }
    }

    async fn send_data(&mut self, mut data: Bytes, is_last: bool) -> Result<(), StreamSendError> {
        while !data.is_empty() {
            let room = poll_fn(|context| self.poll_send_capacity(data.len(), context)).await?;
            let piece = data.split_to(room.min(data.len()));
            self.bytes_sent += piece.len() as u64;
            self.request.traffic().note_useful(piece.len());
            if is_last && data.is_empty() {
                return self.send_last(piece);
            }
            self.stream.send_data(piece, false)?;
        }
        if is_last { self.send_last(data) } else { Ok(()) }
    }

    /// Sends the last piece of the body, which may be empty, with the answer's permit.
    fn send_last(&mut self, piece: Bytes) -> Result<(), StreamSendError> {
        let piece = match self.take_grown_permit() {
            Some(permit) => unsent_bytes::attach(permit, piece),
            None => piece,
        };
        Ok(self.stream.send_data(piece, true)?)
    }

    /// Sends the trailers with the answer's permit.
    fn send_trailers(&mut self, mut trailers: HeaderMap) -> Result<(), StreamSendError> {
        self.head_bytes += size_of_fields(&trailers);
        let Some(value) = trailers.values_mut().next() else { return self.send_last(Bytes::new()) };
        if let Some(permit) = self.take_grown_permit() {
            unsent_bytes::attach_to_value(permit, value);
        }
        Ok(self.stream.send_trailers(trailers)?)
    }

    /// Counts all that h2 may have of the answer, and returns the permit.
    fn take_grown_permit(&mut self) -> Option<AnswerPermit> {
        let mut permit = self.permit.take()?;
        permit.grow_to(self.head_bytes + self.bytes_sent.min(MAX_SEND_BUFFER as u64));
        Some(permit)
    }

    /// Waits until the client has room for some of the bytes. Returns the number of bytes.
    fn poll_send_capacity(
        &mut self,
        wanted: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, StreamSendError>> {
        self.stream.reserve_capacity(wanted.min(MAX_SEND_BUFFER));
        loop {
            let room = self.stream.capacity();
            if room > 0 {
                self.write_stall.end_stall();
                return Poll::Ready(Ok(room));
            }
            match self.stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(StreamSendError::Disconnected)),
                Poll::Pending
                    if self.write_stall.is_over_at_rate(
                        self.bytes_sent,
                        MIN_READ_RATE,
                        WRITE_STALL_TIMEOUT,
                        context,
                    ) =>
                {
                    return Poll::Ready(Err(StreamSendError::WriteStalled));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl StreamSendError {
    fn reset_reason(&self) -> Reason {
        match self {
            Self::WriteStalled => Reason::ENHANCE_YOUR_CALM,
            Self::Body(error) if error.is::<LimitReached>() => Reason::ENHANCE_YOUR_CALM,
            Self::Disconnected | Self::Body(_) => Reason::INTERNAL_ERROR,
        }
    }
}

/// Returns `Date`, which is formatted once a second on each thread.
fn date_header() -> HeaderValue {
    thread_local! {
        static NOW: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
    }
    // The coarse clock lags by a few milliseconds and costs almost nothing.
    let second = u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or_default();
    NOW.with_borrow_mut(|(at, date)| {
        if *at != second {
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            (*at, *date) = (second, HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")));
        }
        date.clone()
    })
}
