//! The path of one request through the filters of a route, to its handler, and back.
//!
//! Heads pass filter by filter: the next filter sees a head only after the one before has released it. Bodies
//! stream, each filter's [`FilteredBody`] around the one before. While the handler runs, filters are still
//! observed: a filter may answer the request or fail at any time until the response head has left.
//!
//! Before a head is sent on, the first piece of its body is shown to the filters that read bodies. A filter
//! that holds this piece back holds the head back too, so that the body can still change the head or cause a
//! response with a status of its own.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use handler::{HandlerRequest, HandlerResponse, LoggedProblem};
use http::header::CONTENT_LENGTH;
use http::uri::Authority;
use http::{Extensions, Response, request};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use offload::polls::{PollSite, watch_polls};
use services::body::BodyError;
use services::{StreamedServiceBody, body};
use tokio::runtime::Handle;

use super::FilterChain;
use super::body::{FilteredBody, HeldMessage};
use crate::abi::{FilterAction, MessageSide};
use crate::config::OnTrap;
use crate::context::{FilterVerdict, LocalResponse, StreamContext, StreamWaiter};
use crate::error::FilterFailure;
use crate::exchange::{ExchangeInfo, ExchangeMessages, FilterExchange};
use crate::telemetry::increment;
use crate::vm::{
    BackOff, CallbackFuture, EntryError, FilterPlugin, HeadersCallback, NotReady, StreamGuard, StreamHandle,
};

/// An exchange in progress. When it is dropped, its streams end.
struct ExchangeRun {
    /// Ended before the chain is dropped: the end has to reach instances that the chain may own.
    streams: Vec<StreamGuard>,
    /// Keeps the filters of requests in flight alive across a reload.
    chain: Arc<FilterChain>,
    exchange: Arc<FilterExchange>,
}

/// A stream context, with the module's result for the request's head.
type OpenedStream = Result<(StreamGuard, FilterAction), EntryError>;

/// The next step for a message after a filter.
enum ExchangeStep {
    Continue(StreamedServiceBody),
    Respond(LocalResponse),
}

/// The parts of a response that filters do not see.
struct UnfilteredParts {
    /// The extensions, which only carry the tunnel of a protocol upgrade.
    upgrade: Extensions,
    held_bytes: u64,
    problem: Option<LoggedProblem>,
}

/// See [`FilterChain::run_exchange`]. Large parts of the request are moved to the heap before the future is
/// created, to keep the future small.
pub(crate) fn run<H, F>(
    chain: &Arc<FilterChain>,
    request: HandlerRequest,
    facts: ExchangeInfo,
    handle: H,
) -> impl Future<Output = Result<HandlerResponse, FilterFailure>> + use<H, F>
where
    H: FnOnce(HandlerRequest) -> F,
    F: Future<Output = HandlerResponse>,
{
    let HandlerRequest { head, body, call, caller_limits, visible_entries, authority: _ } = request;
    let exchange = FilterExchange::new(head, call.clone(), facts);
    let streams = Vec::with_capacity(chain.plugins().len());
    let run = ExchangeRun { chain: Arc::clone(chain), exchange, streams };
    run.run_phases(body, move |head, body, authority| {
        handle(HandlerRequest { head, body, call, caller_limits, visible_entries, authority })
    })
}

impl ExchangeRun {
    /// Runs the request and the response phase.
    async fn run_phases<H, F>(
        mut self,
        body: StreamedServiceBody,
        handle: H,
    ) -> Result<HandlerResponse, FilterFailure>
    where
        H: FnOnce(request::Parts, StreamedServiceBody, Option<Authority>) -> F,
        F: Future<Output = HandlerResponse>,
    {
        let handler_response = match self.process_request(body).await? {
            ExchangeStep::Continue(body) => {
                let (head, authority) = self.take_request_head()?;
                let answer = pin!(handle(head, body, authority));
                self.wait_for_response(answer).await?
            }
            ExchangeStep::Respond(local) => Err(local),
        };
        let response = handler_response.unwrap_or_else(|local| self.build_local_response(local).into());
        self.process_response(response).await
    }

    /// Passes the request's head and the first piece of its body through all filters.
    async fn process_request(
        &mut self,
        mut body: StreamedServiceBody,
    ) -> Result<ExchangeStep, FilterFailure> {
        let chain = Arc::clone(&self.chain);
        for plugin in chain.plugins() {
            let is_end = body.is_end_stream();
            let number = self.exchange.messages().header_count(MessageSide::Request);
            let mut opened = match plugin.open_stream(&self.exchange, number, is_end) {
                CallbackFuture::Done(opened) => opened.unwrap_or(Err(EntryError::InstanceLost)),
                opening => self.open_before_deadline(opening).await,
            };
            if let Err(EntryError::NotReady(NotReady::BackingOff(back_off))) = opened {
                opened = Box::pin(self.open_after_backoff(plugin, back_off, (number, is_end))).await;
            }
            let Some((stream, action)) = self.register_stream(plugin, opened)? else { continue };
            match self.process_head(&stream, MessageSide::Request, body, action, is_end).await? {
                ExchangeStep::Continue(next) => body = next,
                answer @ ExchangeStep::Respond(_) => return Ok(answer),
            }
        }
        let waits = || self.streams.iter().all(|stream| stream.is_lenient()) && !self.exchange.is_grpc();
        self.prepare_body(body, MessageSide::Request, waits).await
    }

    /// Waits for a stream context until the request's deadline.
    async fn open_before_deadline(
        &self,
        opening: CallbackFuture<(StreamGuard, FilterAction)>,
    ) -> OpenedStream {
        let in_time = tokio::time::timeout_at(self.exchange.deadline(), opening).await;
        in_time.unwrap_or(Err(EntryError::QueueFull))
    }

    /// Opens a stream context after the back-off, with at most one more attempt.
    async fn open_after_backoff(
        &self,
        plugin: &FilterPlugin,
        back_off: BackOff,
        (number, is_end): (u32, bool),
    ) -> OpenedStream {
        if back_off.retry_at >= self.exchange.deadline() {
            tokio::time::sleep_until(self.exchange.deadline()).await;
            return Err(EntryError::NotReady(NotReady::BackingOff(back_off)));
        }
        tokio::time::sleep_until(back_off.retry_at).await;
        self.open_before_deadline(plugin.open_stream(&self.exchange, number, is_end)).await
    }

    /// Returns a filter's stream context with the module's result for the request's head, or `None` if the
    /// filter is bypassed.
    fn register_stream(
        &mut self,
        plugin: &FilterPlugin,
        opened: OpenedStream,
    ) -> Result<Option<(StreamHandle, FilterAction)>, FilterFailure> {
        let error = match opened {
            Ok((stream, action)) => {
                let handle = StreamHandle::clone(&stream);
                self.streams.push(stream);
                return Ok(Some((handle, action)));
            }
            Err(error) => error,
        };
        let filter = || Arc::clone(&plugin.spec.name);
        let may_skip = match &error {
            EntryError::QueueFull => {
                increment(&plugin.spec.stats.failed_requests);
                return Err(FilterFailure::Busy(filter()));
            }
            EntryError::OverQuota(retry_after) => {
                return Err(FilterFailure::RestartQuota { retry_after: *retry_after });
            }
            // The instance trapped for this request, or does not start at all.
            EntryError::InstanceLost | EntryError::NotReady(NotReady::Trapped(_) | NotReady::Refused(_)) => {
                true
            }
            EntryError::NotReady(NotReady::BackingOff(back_off)) => back_off.is_start,
        };
        plugin.log_missing_instance(error);
        if may_skip && plugin.spec.on_trap == OnTrap::Open {
            increment(&plugin.spec.stats.bypassed_requests);
            return Ok(None);
        }
        increment(&plugin.spec.stats.failed_requests);
        Err(FilterFailure::Trapped(filter()))
    }

    /// Waits until a filter that has seen a head releases it.
    async fn process_head(
        &self,
        stream: &StreamHandle,
        side: MessageSide,
        body: StreamedServiceBody,
        action: FilterAction,
        is_end: bool,
    ) -> Result<ExchangeStep, FilterFailure> {
        let mut passing = if is_end || !stream.features.reads_body(side) {
            BodyPath::Plain(body)
        } else {
            let before = self.streams.iter().take_while(|before| !Arc::ptr_eq(before, stream));
            let counts = side == MessageSide::Request
                && before.into_iter().all(|before| !before.features.reads_body(side));
            BodyPath::Filtered(Box::new(FilteredBody::new(stream, side, body, counts)))
        };
        // The callback of a call may have run since the module released the head.
        let goes_on =
            side == MessageSide::Response || action == FilterAction::Pause || stream.release_request();
        if action == FilterAction::Continue && goes_on && !stream.is_head_blocked() {
            return Ok(ExchangeStep::Continue(passing.into_body()));
        }
        let mut held = action == FilterAction::Pause;
        let mut timer = None;
        let answer = poll_fn(|context| {
            self.register_wakers(context);
            loop {
                if let Some(news) = self.first_verdict() {
                    return Poll::Ready(news.map(Some));
                }
                if stream.is_bypassed() {
                    return Poll::Ready(Ok(None));
                }
                // Signals sent during a callback take effect once it has returned.
                let is_calling = passing.is_calling();
                if held && !is_calling && stream.take_head_resumed(side) {
                    held = false;
                    passing.resume();
                }
                let waits =
                    side == MessageSide::Request && stream.is_lenient() && stream.state().awaited_calls > 0;
                if !held && !waits && !is_calling {
                    // Callbacks of calls may have been refused something since the head was released.
                    if side == MessageSide::Request && !stream.release_request() {
                        continue;
                    }
                    return Poll::Ready(Ok(None));
                }
                if is_calling || (held && !waits && stream.is_lenient()) {
                    match passing.poll_held_head(context) {
                        Poll::Ready(Ok(let_go)) => {
                            held &= !let_go;
                            continue;
                        }
                        // Another filter may have ended the body; its verdict is the reason.
                        Poll::Ready(Err(_)) => {
                            let broken = || Err(FilterFailure::Broken(side.name()));
                            let news = self.first_verdict();
                            return Poll::Ready(news.map_or_else(broken, |news| news.map(Some)));
                        }
                        Poll::Pending => {}
                    }
                }
                let deadline = self.exchange.deadline();
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
                return match timer.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(self.fail_paused(stream))),
                    Poll::Pending => Poll::Pending,
                };
            }
        });
        Ok(match answer.await? {
            Some(local) => ExchangeStep::Respond(local),
            None => ExchangeStep::Continue(passing.into_body()),
        })
    }

    fn fail_paused(&self, stream: &StreamContext) -> FilterFailure {
        increment(&stream.spec.stats.failed_requests);
        FilterFailure::Paused(Arc::clone(&stream.spec.name))
    }

    /// Registers the task to be woken by verdicts of the filters.
    fn register_wakers(&self, context: &Context<'_>) {
        self.streams.iter().for_each(|stream| stream.register(StreamWaiter::Exchange, context.waker()));
    }

    /// The first verdict of any filter that answers or fails the exchange.
    fn first_verdict(&self) -> Option<Result<LocalResponse, FilterFailure>> {
        for stream in &self.streams {
            match stream.verdict() {
                FilterVerdict::Continue | FilterVerdict::Bypass => {}
                FilterVerdict::Respond(local) => return Some(Ok(local)),
                FilterVerdict::Fail(failed) => {
                    increment(&stream.spec.stats.failed_requests);
                    return Some(Err(failed));
                }
            }
        }
        None
    }

    /// Returns the request's head for the handler, with the authority that filters have chosen.
    fn take_request_head(&self) -> Result<(request::Parts, Option<Authority>), FilterFailure> {
        let keeps =
            self.streams.iter().any(|stream| stream.features.can_read_sent_head(MessageSide::Request));
        let calls_before = self.exchange.call.budget.call_count();
        let mut messages = self.exchange.messages();
        messages.calls_before = calls_before;
        let authority = messages.head_overrides.authority.clone();
        let head = messages.release_request(keeps).ok_or_else(missing_head)?;
        Ok((head, authority))
    }

    /// Waits for the head of the handler's response.
    async fn wait_for_response(
        &self,
        mut answer: Pin<&mut impl Future<Output = HandlerResponse>>,
    ) -> Result<Result<HandlerResponse, LocalResponse>, FilterFailure> {
        poll_fn(|context| {
            let handler_response = answer.as_mut().poll(context);
            if handler_response.is_pending() {
                self.register_wakers(context);
            }
            // The filter that ended the request's body provides the reason, not the reader of the body.
            match (self.first_verdict(), handler_response) {
                (Some(news), _) => Poll::Ready(news.map(Err)),
                (None, Poll::Ready(response)) => Poll::Ready(Ok(Ok(response))),
                (None, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }

    /// Prepares a body whose head is about to leave. If filters read it, its first piece is included if it is
    /// ready, awaited or held back.
    async fn prepare_body(
        &self,
        mut body: StreamedServiceBody,
        side: MessageSide,
        waits: impl Fn() -> bool,
    ) -> Result<ExchangeStep, FilterFailure> {
        if body.is_end_stream() || !self.streams.iter().any(|stream| stream.features.reads_body(side)) {
            drop(self.settle_length(side));
            return Ok(ExchangeStep::Continue(body));
        }
        let waits = waits();
        let first = poll_fn(|context| {
            let polled = Pin::new(&mut body).poll_frame(context);
            self.register_wakers(context);
            if let Some(news) = self.first_verdict() {
                return Poll::Ready(news.map(Err));
            }
            match polled {
                Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Ok(Some(frame)))),
                Poll::Ready(Some(Err(_))) => Poll::Ready(Err(FilterFailure::Broken(side.name()))),
                Poll::Ready(None) => Poll::Ready(Ok(Ok(None))),
                Poll::Pending if waits || self.is_body_held(side) => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(Ok(None))),
            }
        });
        Ok(match first.await? {
            Ok(first) => ExchangeStep::Continue(
                HeldMessage::new(first, body, self.settle_length(side).announced_length(side)).boxed_unsync(),
            ),
            Err(local) => ExchangeStep::Respond(local),
        })
    }

    fn is_body_held(&self, side: MessageSide) -> bool {
        self.streams.iter().any(|stream| stream.state().half(side).is_held)
    }

    /// Removes the announced length of a head that is about to leave if its body has been changed.
    fn settle_length(&self, side: MessageSide) -> MutexGuard<'_, ExchangeMessages> {
        let changes =
            |stream: &StreamGuard| stream.features.reads_body(side) && stream.state().half(side).is_changed;
        let is_changed = self.streams.iter().any(changes);
        let mut messages = self.exchange.messages();
        messages.settle_length(side, is_changed);
        messages
    }

    /// Converts a filter's local response.
    fn build_local_response(&self, local: LocalResponse) -> Response<StreamedServiceBody> {
        let LocalResponse { status, mut headers, body, details } = local;
        self.exchange.messages().details = details;
        // The length of the actual body, regardless of the module's header.
        headers.remove(CONTENT_LENGTH);
        let mut response = Response::new(body::full(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// Passes the response through all filters that have seen the request, in reverse order.
    async fn process_response(self, response: HandlerResponse) -> Result<HandlerResponse, FilterFailure> {
        let (mut body, mut unfiltered) = self.set_response(response);
        for stream in self.streams.iter().rev() {
            let (number, is_bodiless) = {
                let mut messages = self.exchange.messages();
                (messages.header_count(MessageSide::Response), messages.is_bodiless())
            };
            let is_end = is_bodiless || body.is_end_stream();
            let (stream, side) = (StreamHandle::clone(stream), MessageSide::Response);
            let callback = HeadersCallback { stream: Arc::clone(&stream), side, count: number, is_end };
            // If the instance is gone, the verdict decides whether the exchange ends.
            let action = stream.enter(callback).await.unwrap_or_else(|_| {
                stream.note_lost_callback(side);
                FilterAction::Continue
            });
            match self.process_head(&stream, side, body, action, is_end).await? {
                ExchangeStep::Continue(next) => body = next,
                ExchangeStep::Respond(local) => {
                    (body, unfiltered) = self.set_response(self.build_local_response(local).into())
                }
            }
        }
        match self.prepare_body(body, MessageSide::Response, || false).await? {
            ExchangeStep::Continue(next) => body = next,
            ExchangeStep::Respond(local) => {
                (body, unfiltered) = self.set_response(self.build_local_response(local).into());
                drop(self.settle_length(MessageSide::Response));
            }
        }
        let keeps =
            self.streams.iter().any(|stream| stream.features.can_read_sent_head(MessageSide::Response));
        let mut head = self.exchange.messages().release_response(keeps).ok_or_else(missing_head)?;
        head.extensions = unfiltered.upgrade;
        let body = ResponseBodyStream { body, run: self }.boxed_unsync();
        Ok(HandlerResponse {
            response: Response::from_parts(head, body),
            json_tree: None,
            held_bytes: unfiltered.held_bytes,
            problem: unfiltered.problem,
        })
    }

    /// Stores the head of a response of the handler or a filter. Returns the parts that filters do not see.
    /// The tree is dropped, since it would not include the changes that filters make to the body.
    fn set_response(&self, response: HandlerResponse) -> (StreamedServiceBody, UnfilteredParts) {
        let HandlerResponse { response, held_bytes, problem, json_tree: _ } = response;
        let (mut head, body) = response.into_parts();
        let upgrade = std::mem::take(&mut head.extensions);
        self.exchange.messages().set_response(head);
        (body, UnfilteredParts { upgrade, held_bytes, problem })
    }
}

fn missing_head() -> FilterFailure {
    FilterFailure::Head("its head is missing".to_owned())
}

/// Marks the exchange as over, on every path, and ends its streams. If the end of one takes until a tick,
/// those after it end in a task, each in a poll of its own.
impl Drop for ExchangeRun {
    fn drop(&mut self) {
        self.exchange.messages().is_over = true;
        let Some(long) = self.streams.iter_mut().position(StreamGuard::end_stream) else { return };
        let left = self.streams.split_off(long + 1);
        if let (Ok(runtime), false) = (Handle::try_current(), left.is_empty()) {
            let chain = Arc::clone(&self.chain);
            runtime.spawn(watch_polls(PollSite::Filters, async move {
                let _chain = chain;
                for stream in left {
                    tokio::task::yield_now().await;
                    drop(stream);
                }
            }));
        }
    }
}

/// A body after a filter has seen the head.
enum BodyPath {
    Plain(StreamedServiceBody),
    Filtered(Box<FilteredBody>),
}

impl BodyPath {
    fn resume(&mut self) {
        if let Self::Filtered(filtered) = self {
            filtered.resume();
        }
    }

    /// Whether the module has yet to return from a callback about the body.
    fn is_calling(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Filtered(filtered) => filtered.is_calling(),
        }
    }

    fn poll_held_head(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Plain(_) => Poll::Pending,
            Self::Filtered(filtered) => filtered.poll_held_head(context),
        }
    }

    fn into_body(self) -> StreamedServiceBody {
        match self {
            Self::Plain(body) => body,
            Self::Filtered(filtered) => filtered.boxed_unsync(),
        }
    }
}

/// The response's body, sent to the client. The exchange ends with it.
struct ResponseBodyStream {
    body: StreamedServiceBody,
    run: ExchangeRun,
}

impl http_body::Body for ResponseBodyStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => self.run.exchange.count_bytes(MessageSide::Response, data.len()),
                (None, trailers) => self.run.exchange.messages().trailers = trailers.cloned(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
