//! The path of one request through the filters of a route, to its handler, and back.
//!
//! Heads pass filter by filter: the next filter sees a head only after the one before has released it. Bodies
//! stream, each filter's [`Filtered`] around the one before. While the handler runs, filters are still
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
use http::header::CONTENT_LENGTH;
use http::{Extensions, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use offload::polls::{PollSite, watched};
use services::body::BodyError;
use services::headers::TargetServiceName;
use services::{RequestCall, StreamedServiceBody, body};
use tokio::runtime::Handle;

use crate::abi::{Action, Side};
use crate::body::{Filtered, Held};
use crate::callbacks::HeadersCallback;
use crate::chain::Chain;
use crate::config::OnTrap;
use crate::entry::{CallbackFuture, EntryError};
use crate::facts::Facts;
use crate::instance::NotReady;
use crate::messages::{Exchange, Messages};
use crate::plugin::Plugin;
use crate::problem::Failed;
use crate::slot::BackOff;
use crate::stats::count;
use crate::stream::{Local, Stream, StreamGuard, Verdict, Waiter};

/// An exchange in progress. When it is dropped, its streams end.
struct Run {
    /// Ended before the chain is dropped: the end has to reach instances that the chain may own.
    streams: Vec<StreamGuard>,
    /// Keeps the filters of requests in flight alive across a reload.
    chain: Arc<Chain>,
    exchange: Arc<Exchange>,
}

/// A stream context, with the module's result for the request's head.
type Opened = Result<(StreamGuard, Action), EntryError>;

/// The next step for a message after a filter.
enum Step {
    Next(StreamedServiceBody),
    Answer(Local),
}

/// See [`Chain::around`]. Large parts of the request are moved to the heap before the future is created, to
/// keep the future small.
pub(crate) fn run<H, F>(
    chain: &Arc<Chain>,
    request: Request<StreamedServiceBody>,
    call: RequestCall,
    facts: Facts,
    handle: H,
) -> impl Future<Output = Result<Response<StreamedServiceBody>, Failed>> + use<H, F>
where
    H: FnOnce(Request<StreamedServiceBody>) -> F,
    F: Future<Output = Response<StreamedServiceBody>>,
{
    let (mut head, body) = request.into_parts();
    let extensions = std::mem::take(&mut head.extensions);
    let exchange = Exchange::new(head, call, facts);
    let streams = Vec::with_capacity(chain.plugins().len());
    let run = Run { chain: Arc::clone(chain), exchange, streams };
    run.go(body, extensions, handle)
}

impl Run {
    /// Runs the request and the response phase.
    async fn go<H, F>(
        mut self,
        body: StreamedServiceBody,
        extensions: Extensions,
        handle: H,
    ) -> Result<Response<StreamedServiceBody>, Failed>
    where
        H: FnOnce(Request<StreamedServiceBody>) -> F,
        F: Future<Output = Response<StreamedServiceBody>>,
    {
        let answered = match self.request(body).await? {
            Step::Next(body) => {
                let request = self.let_go(body, extensions)?;
                let answer = pin!(handle(request));
                self.wait(answer).await?
            }
            Step::Answer(local) => Err(local),
        };
        let response = answered.unwrap_or_else(|local| self.local(local));
        self.respond(response).await
    }

    /// Passes the request's head and the first piece of its body through all filters.
    async fn request(&mut self, mut body: StreamedServiceBody) -> Result<Step, Failed> {
        let chain = Arc::clone(&self.chain);
        for plugin in chain.plugins() {
            let is_end = body.is_end_stream();
            let number = self.exchange.messages().count(Side::Request);
            let mut opened = match plugin.open(&self.exchange, number, is_end) {
                CallbackFuture::Done(opened) => opened.unwrap_or(Err(EntryError::Gone)),
                opening => self.until_deadline(opening).await,
            };
            if let Err(EntryError::NotReady(NotReady::Later(back_off))) = opened {
                opened = Box::pin(self.open_later(plugin, back_off, (number, is_end))).await;
            }
            let Some((stream, action)) = self.take_opened(plugin, opened)? else { continue };
            match self.head(&stream, Side::Request, body, action, is_end).await? {
                Step::Next(next) => body = next,
                answer @ Step::Answer(_) => return Ok(answer),
            }
        }
        let waits = || self.streams.iter().all(|stream| stream.is_lenient()) && !self.exchange.is_grpc();
        self.begun(body, Side::Request, waits).await
    }

    /// Waits for a stream context until the request's deadline.
    async fn until_deadline(&self, opening: CallbackFuture<(StreamGuard, Action)>) -> Opened {
        let in_time = tokio::time::timeout_at(self.exchange.deadline(), opening).await;
        in_time.unwrap_or(Err(EntryError::Full))
    }

    /// Opens a stream context after the back-off, with at most one more attempt.
    async fn open_later(&self, plugin: &Plugin, back_off: BackOff, (number, is_end): (u32, bool)) -> Opened {
        if back_off.until >= self.exchange.deadline() {
            tokio::time::sleep_until(self.exchange.deadline()).await;
            return Err(EntryError::NotReady(NotReady::Later(back_off)));
        }
        tokio::time::sleep_until(back_off.until).await;
        self.until_deadline(plugin.open(&self.exchange, number, is_end)).await
    }

    /// Returns a filter's stream context with the module's result for the request's head, or `None` if the
    /// filter is bypassed.
    fn take_opened(
        &mut self,
        plugin: &Plugin,
        opened: Opened,
    ) -> Result<Option<(Arc<Stream>, Action)>, Failed> {
        let error = match opened {
            Ok((stream, action)) => {
                let opened = Arc::clone(&stream);
                self.streams.push(stream);
                return Ok(Some((opened, action)));
            }
            Err(error) => error,
        };
        let filter = || Arc::clone(&plugin.spec.name);
        let may_skip = match &error {
            EntryError::Full => {
                count(&plugin.spec.stats.failed);
                return Err(Failed::Busy(filter()));
            }
            EntryError::OverQuota(retry_after) => {
                return Err(Failed::RestartQuota { retry_after: *retry_after });
            }
            // The instance trapped for this request, or does not start at all.
            EntryError::Gone | EntryError::NotReady(NotReady::Trapped(_) | NotReady::Refused(_)) => true,
            EntryError::NotReady(NotReady::Later(back_off)) => back_off.is_start,
        };
        plugin.log_missing(error);
        if may_skip && plugin.spec.on_trap == OnTrap::Open {
            count(&plugin.spec.stats.bypassed);
            return Ok(None);
        }
        count(&plugin.spec.stats.failed);
        Err(Failed::Trapped(filter()))
    }

    /// Waits until a filter that has seen a head releases it.
    async fn head(
        &self,
        stream: &Arc<Stream>,
        side: Side,
        body: StreamedServiceBody,
        action: Action,
        is_end: bool,
    ) -> Result<Step, Failed> {
        let mut passing = if is_end || !stream.has.body(side) {
            Passing::Plain(body)
        } else {
            let before = self.streams.iter().take_while(|before| !Arc::ptr_eq(before, stream));
            let counts = side == Side::Request && before.into_iter().all(|before| !before.has.body(side));
            Passing::Filtered(Box::new(Filtered::new(stream, side, body, counts)))
        };
        // The callback of a call may have run since the module released the head.
        let goes_on = side == Side::Response || action == Action::Pause || stream.let_go();
        if action == Action::Continue && goes_on && !stream.has_news() {
            return Ok(Step::Next(passing.into_body()));
        }
        let mut held = action == Action::Pause;
        let mut timer = None;
        let answer = poll_fn(|context| {
            self.listen(context);
            loop {
                if let Some(news) = self.news() {
                    return Poll::Ready(news.map(Some));
                }
                if stream.is_skipped() {
                    return Poll::Ready(Ok(None));
                }
                // Signals sent during a callback take effect once it has returned.
                let is_calling = passing.is_calling();
                if held && !is_calling && stream.take_head_resumed(side) {
                    held = false;
                    passing.resume();
                }
                let waits = side == Side::Request && stream.is_lenient() && stream.state().waiting > 0;
                if !held && !waits && !is_calling {
                    // Callbacks of calls may have been refused something since the head was released.
                    if side == Side::Request && !stream.let_go() {
                        continue;
                    }
                    return Poll::Ready(Ok(None));
                }
                if is_calling || (held && !waits && stream.is_lenient()) {
                    match passing.gather(context) {
                        Poll::Ready(Ok(let_go)) => {
                            held &= !let_go;
                            continue;
                        }
                        // Another filter may have ended the body; its verdict is the reason.
                        Poll::Ready(Err(_)) => {
                            let broken = || Err(Failed::Broken(side.name()));
                            let news = self.news();
                            return Poll::Ready(news.map_or_else(broken, |news| news.map(Some)));
                        }
                        Poll::Pending => {}
                    }
                }
                let deadline = self.exchange.deadline();
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
                return match timer.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(self.fail(stream))),
                    Poll::Pending => Poll::Pending,
                };
            }
        });
        Ok(match answer.await? {
            Some(local) => Step::Answer(local),
            None => Step::Next(passing.into_body()),
        })
    }

    fn fail(&self, stream: &Stream) -> Failed {
        count(&stream.spec.stats.failed);
        Failed::Paused(Arc::clone(&stream.spec.name))
    }

    /// Registers the task to be woken by verdicts of the filters.
    fn listen(&self, context: &Context<'_>) {
        self.streams.iter().for_each(|stream| stream.register(Waiter::Exchange, context.waker()));
    }

    /// The first verdict of any filter that answers or fails the exchange.
    fn news(&self) -> Option<Result<Local, Failed>> {
        for stream in &self.streams {
            match stream.verdict() {
                Verdict::Go | Verdict::Skip => {}
                Verdict::Answer(local) => return Some(Ok(local)),
                Verdict::Fail(failed) => {
                    count(&stream.spec.stats.failed);
                    return Some(Err(failed));
                }
            }
        }
        None
    }

    /// Builds the request for the handler.
    fn let_go(
        &self,
        body: StreamedServiceBody,
        extensions: Extensions,
    ) -> Result<Request<StreamedServiceBody>, Failed> {
        let keeps = self.streams.iter().any(|stream| stream.has.looks_back(Side::Request));
        let calls_before = self.exchange.call.budget.made_count();
        let mut messages = self.exchange.messages();
        messages.calls_before = calls_before;
        let named = messages.aside.authority.clone();
        let mut head = messages.let_request_go(keeps).ok_or_else(no_head)?;
        drop(messages);
        head.extensions = extensions;
        named.into_iter().for_each(|named| _ = head.extensions.insert(TargetServiceName(named)));
        Ok(Request::from_parts(head, body))
    }

    /// Waits for the head of the handler's response.
    async fn wait(
        &self,
        mut answer: Pin<&mut impl Future<Output = Response<StreamedServiceBody>>>,
    ) -> Result<Result<Response<StreamedServiceBody>, Local>, Failed> {
        poll_fn(|context| {
            let answered = answer.as_mut().poll(context);
            if answered.is_pending() {
                self.listen(context);
            }
            // The filter that ended the request's body provides the reason, not the reader of the body.
            match (self.news(), answered) {
                (Some(news), _) => Poll::Ready(news.map(Err)),
                (None, Poll::Ready(response)) => Poll::Ready(Ok(Ok(response))),
                (None, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }

    /// Prepares a body whose head is about to leave. If filters read it, its first piece is included if it is
    /// ready, awaited or held back.
    async fn begun(
        &self,
        mut body: StreamedServiceBody,
        side: Side,
        waits: impl Fn() -> bool,
    ) -> Result<Step, Failed> {
        if body.is_end_stream() || !self.streams.iter().any(|stream| stream.has.body(side)) {
            drop(self.settle_length(side));
            return Ok(Step::Next(body));
        }
        let waits = waits();
        let first = poll_fn(|context| {
            let polled = Pin::new(&mut body).poll_frame(context);
            self.listen(context);
            if let Some(news) = self.news() {
                return Poll::Ready(news.map(Err));
            }
            match polled {
                Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Ok(Some(frame)))),
                Poll::Ready(Some(Err(_))) => Poll::Ready(Err(Failed::Broken(side.name()))),
                Poll::Ready(None) => Poll::Ready(Ok(Ok(None))),
                Poll::Pending if waits || self.is_held(side) => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(Ok(None))),
            }
        });
        Ok(match first.await? {
            Ok(first) => {
                Step::Next(Held::new(first, body, self.settle_length(side).length(side)).boxed_unsync())
            }
            Err(local) => Step::Answer(local),
        })
    }

    fn is_held(&self, side: Side) -> bool {
        self.streams.iter().any(|stream| stream.state().half(side).held)
    }

    /// Removes the announced length of a head that is about to leave if its body has been changed.
    fn settle_length(&self, side: Side) -> MutexGuard<'_, Messages> {
        let changes = |stream: &StreamGuard| stream.has.body(side) && stream.state().half(side).changed;
        let is_changed = self.streams.iter().any(changes);
        let mut messages = self.exchange.messages();
        messages.settle_length(side, is_changed);
        messages
    }

    /// Converts a filter's local response.
    fn local(&self, local: Local) -> Response<StreamedServiceBody> {
        let Local { status, mut headers, body, details } = local;
        self.exchange.messages().details = details;
        // The length of the actual body, regardless of the module's header.
        headers.remove(CONTENT_LENGTH);
        let mut response = Response::new(body::full(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// Passes the response through all filters that have seen the request, in reverse order.
    async fn respond(
        self,
        response: Response<StreamedServiceBody>,
    ) -> Result<Response<StreamedServiceBody>, Failed> {
        let (mut body, mut extensions) = self.set_response(response);
        for stream in self.streams.iter().rev() {
            let (number, is_bodiless) = {
                let mut messages = self.exchange.messages();
                (messages.count(Side::Response), messages.is_bodiless())
            };
            let is_end = is_bodiless || body.is_end_stream();
            let (stream, side) = (Arc::clone(stream), Side::Response);
            let callback = HeadersCallback { stream: Arc::clone(&stream), side, count: number, is_end };
            // If the instance is gone, the verdict decides whether the exchange ends.
            let action = stream.enter(callback).await.unwrap_or_else(|_| {
                stream.note_lost_callback(side);
                Action::Continue
            });
            match self.head(&stream, side, body, action, is_end).await? {
                Step::Next(next) => body = next,
                Step::Answer(local) => (body, extensions) = self.set_response(self.local(local)),
            }
        }
        match self.begun(body, Side::Response, || false).await? {
            Step::Next(next) => body = next,
            Step::Answer(local) => {
                (body, extensions) = self.set_response(self.local(local));
                drop(self.settle_length(Side::Response));
            }
        }
        let keeps = self.streams.iter().any(|stream| stream.has.looks_back(Side::Response));
        let mut head = self.exchange.messages().let_response_go(keeps).ok_or_else(no_head)?;
        head.extensions = extensions;
        Ok(Response::from_parts(head, Outgoing { body, run: self }.boxed_unsync()))
    }

    /// Stores the head of a response of the handler or a filter. Returns the parts that filters do not see.
    fn set_response(&self, response: Response<StreamedServiceBody>) -> (StreamedServiceBody, Extensions) {
        let (mut head, body) = response.into_parts();
        let extensions = std::mem::take(&mut head.extensions);
        self.exchange.messages().set_response(head);
        (body, extensions)
    }
}

fn no_head() -> Failed {
    Failed::Head("its head is missing".to_owned())
}

/// Marks the exchange as over, on every path, and ends its streams. If the end of one takes until a tick,
/// those after it end in a task, each in a poll of its own.
impl Drop for Run {
    fn drop(&mut self) {
        self.exchange.messages().is_over = true;
        let Some(long) = self.streams.iter_mut().position(StreamGuard::end) else { return };
        let left = self.streams.split_off(long + 1);
        if let (Ok(runtime), false) = (Handle::try_current(), left.is_empty()) {
            let chain = Arc::clone(&self.chain);
            runtime.spawn(watched(PollSite::Filters, async move {
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
enum Passing {
    Plain(StreamedServiceBody),
    Filtered(Box<Filtered>),
}

impl Passing {
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

    fn gather(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Plain(_) => Poll::Pending,
            Self::Filtered(filtered) => filtered.gather(context),
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
struct Outgoing {
    body: StreamedServiceBody,
    run: Run,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => self.run.exchange.count(Side::Response, data.len()),
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

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}
