//! The way of one request through the filters of a route, to its handler, and back.
//!
//! Heads go filter by filter: a filter has seen the head and let it go before the next one sees it. Bodies
//! stream, each filter's [`Filtered`] around the one before it. While the handler is at work the filters'
//! news are still heard: one may answer itself, or fail, at any time until the answer's head has left.
//!
//! Before a head is sent on, the first piece of its body is shown to those who look at bodies. Who holds it
//! back holds the head back too, so that a body can still change the head, and be refused with a status.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Extensions, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use services::body::Error;
use services::headers::Named;
use services::{Body, Call, body};

use crate::abi::{Action, Side};
use crate::body::{Filtered, Held};
use crate::chain::Chain;
use crate::config::OnTrap;
use crate::facts::Facts;
use crate::messages::Exchange;
use crate::plugin::Plugin;
use crate::problem::Failed;
use crate::stats::count;
use crate::stream::{Local, Stream, Verdict, Waiter};

/// An exchange on its way. Its end is that of its streams.
struct Run {
    /// Kept so that a reload does not end the filters of requests that are under way.
    chain: Arc<Chain>,
    exchange: Arc<Exchange>,
    streams: Vec<Arc<Stream>>,
    /// The length that the request's head, and then the answer's, announced before filters saw it.
    length: Option<HeaderValue>,
}

/// What becomes of a message after a filter.
enum Step {
    Next(Body),
    Answer(Local),
}

/// See [`Chain::around`].
pub(crate) async fn run<H, F>(
    chain: &Arc<Chain>,
    request: Request<Body>,
    call: &Call,
    facts: Facts,
    handle: H,
) -> Result<Response<Body>, Failed>
where
    H: FnOnce(Request<Body>) -> F,
    F: Future<Output = Response<Body>>,
{
    let (mut head, body) = request.into_parts();
    let extensions = std::mem::take(&mut head.extensions);
    let length = head.headers.get(CONTENT_LENGTH).cloned();
    let exchange = Exchange::new(head, call, facts);
    let streams = Vec::with_capacity(chain.plugins().len());
    let mut run = Run { chain: Arc::clone(chain), exchange, streams, length };
    let answered = match run.request(body).await? {
        Step::Next(body) => run.handle(body, extensions, handle).await?,
        Step::Answer(local) => Err(local),
    };
    let response = answered.unwrap_or_else(|local| run.local(local));
    run.respond(response).await
}

impl Run {
    /// The request's head through all filters.
    async fn request(&mut self, mut body: Body) -> Result<Step, Failed> {
        let chain = Arc::clone(&self.chain);
        for plugin in chain.plugins() {
            let is_end = body.is_end_stream();
            let Some((stream, action)) = self.open(plugin, is_end)? else { continue };
            match self.head(&stream, Side::Request, body, action, is_end).await? {
                Step::Next(next) => body = next,
                answer @ Step::Answer(_) => return Ok(answer),
            }
        }
        Ok(Step::Next(body))
    }

    /// A stream context of a filter, and what it says to the request's head; none if it is left out.
    fn open(&mut self, plugin: &Plugin, is_end: bool) -> Result<Option<(Arc<Stream>, Action)>, Failed> {
        let number = self.count(Side::Request);
        match plugin.open(&self.exchange, number, is_end) {
            Ok((stream, action)) => {
                self.streams.push(Arc::clone(&stream));
                Ok(Some((stream, action)))
            }
            Err(_) if plugin.spec.on_trap == OnTrap::Open => {
                count(&plugin.spec.stats.bypassed);
                Ok(None)
            }
            Err(_) => {
                count(&plugin.spec.stats.failed);
                Err(Failed::Trapped(Arc::clone(&plugin.spec.name)))
            }
        }
    }

    /// How many headers a head has.
    fn count(&self, side: Side) -> u32 {
        self.exchange.messages().head(side == Side::Request).map_or(0, |head| head.count())
    }

    /// A head through one filter, which has seen it, until it has let it go.
    async fn head(
        &self,
        stream: &Arc<Stream>,
        side: Side,
        body: Body,
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
        if action == Action::Continue && !stream.has_news() {
            return Ok(Step::Next(passing.into_body()));
        }
        let mut held = action == Action::Pause;
        let mut timer = None;
        let answer = poll_fn(|context| {
            loop {
                if let Some(news) = self.news(context) {
                    return Poll::Ready(news.map(Some));
                }
                if stream.state().dead {
                    return Poll::Ready(Ok(None));
                }
                if held && stream.take_resumed(side) {
                    held = false;
                    passing.resume();
                }
                let waits = side == Side::Request && stream.is_lenient() && stream.state().waiting > 0;
                if !held && !waits {
                    return Poll::Ready(Ok(None));
                }
                if held && !waits && stream.is_lenient() {
                    match passing.gather(context) {
                        Poll::Ready(Ok(let_go)) => {
                            held &= !let_go;
                            continue;
                        }
                        // Another filter may have ended it, and says why.
                        Poll::Ready(Err(_)) => {
                            let broken = || Err(Failed::Broken(side.name()));
                            let news = self.news(context);
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

    /// What a filter wants instead, whichever; and a call when one does.
    fn news(&self, context: &Context<'_>) -> Option<Result<Local, Failed>> {
        for stream in &self.streams {
            stream.register(Waiter::Exchange, context.waker());
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

    /// The request to its handler, as far as its answer's head.
    async fn handle<H, F>(
        &self,
        mut body: Body,
        extensions: Extensions,
        handle: H,
    ) -> Result<Result<Response<Body>, Local>, Failed>
    where
        H: FnOnce(Request<Body>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let mut begun = None;
        if self.looks_at(Side::Request) && !body.is_end_stream() {
            let waits = self.streams.iter().all(|stream| stream.is_lenient()) && !self.exchange.is_grpc();
            match self.hold(&mut body, Side::Request, waits).await? {
                Ok(first) => begun = Some(first),
                Err(local) => return Ok(Err(local)),
            }
        }
        let announced = self.announced(Side::Request);
        if let Some(first) = begun {
            body = Held::new(first, body, announced).boxed_unsync();
        }
        let keeps = self.streams.iter().any(|stream| stream.has.looks_back());
        let calls_before = self.exchange.call.budget.made_count();
        let (mut head, named) = {
            let mut messages = self.exchange.messages();
            messages.calls_before = calls_before;
            let named = messages.aside.authority.clone();
            (messages.let_request_go(keeps).ok_or_else(no_head)?, named)
        };
        head.extensions = extensions;
        named.into_iter().for_each(|named| _ = head.extensions.insert(Named(named)));
        let mut answer = pin!(handle(Request::from_parts(head, body)));
        poll_fn(|context| {
            let answered = answer.as_mut().poll(context);
            // What ended the request's body is told by the filter that did, not by who was reading it.
            match (self.news(context), answered) {
                (Some(news), _) => Poll::Ready(news.map(Err)),
                (None, Poll::Ready(response)) => Poll::Ready(Ok(Ok(response))),
                (None, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }

    /// Whether a filter looks at this body.
    fn looks_at(&self, side: Side) -> bool {
        self.streams.iter().any(|stream| stream.has.body(side))
    }

    /// The first piece of a body, if it is there, or is waited for, or is held back.
    async fn hold(
        &self,
        body: &mut Body,
        side: Side,
        waits: bool,
    ) -> Result<Result<Option<Frame<Bytes>>, Local>, Failed> {
        poll_fn(|context| {
            let polled = Pin::new(&mut *body).poll_frame(context);
            if let Some(news) = self.news(context) {
                return Poll::Ready(news.map(Err));
            }
            match polled {
                Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Ok(Some(frame)))),
                Poll::Ready(Some(Err(_))) => Poll::Ready(Err(Failed::Broken(side.name()))),
                Poll::Ready(None) => Poll::Ready(Ok(Ok(None))),
                Poll::Pending if waits || self.is_held(side) => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(Ok(None))),
            }
        })
        .await
    }

    fn is_held(&self, side: Side) -> bool {
        self.streams.iter().any(|stream| stream.state().half(side).held)
    }

    /// The length that a head announced of a body that nobody has changed. What filters make of it is nothing
    /// that anybody has counted.
    fn announced(&self, side: Side) -> Option<u64> {
        let is_changed = self.streams.iter().any(|stream| stream.state().half(side).changed);
        if side == Side::Response && self.exchange.is_bodiless() {
            return None;
        }
        let mut messages = self.exchange.messages();
        let headers = match side {
            Side::Request => &mut messages.request.as_mut()?.headers,
            Side::Response => &mut messages.response.as_mut()?.headers,
        };
        if is_changed || !headers.get_all(CONTENT_LENGTH).iter().eq(&self.length) {
            headers.remove(CONTENT_LENGTH);
        }
        headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// A filter's own answer as a response.
    fn local(&self, local: Local) -> Response<Body> {
        let Local { status, mut headers, body, details } = local;
        self.exchange.messages().details = details;
        // The length is that of the body, whatever the module says.
        headers.remove(CONTENT_LENGTH);
        let mut response = Response::new(body::full(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// The response through all filters that have seen the request, the last one first.
    async fn respond(mut self, response: Response<Body>) -> Result<Response<Body>, Failed> {
        let (mut head, mut body) = response.into_parts();
        self.length = head.headers.get(CONTENT_LENGTH).cloned();
        let mut extensions = std::mem::take(&mut head.extensions);
        self.exchange.messages().set_response(head);
        for stream in self.streams.iter().rev() {
            let is_end = body.is_end_stream() || self.exchange.is_bodiless();
            let number = self.count(Side::Response);
            // What it said of an answer before there was one is not about this one.
            stream.state().half(Side::Response).resumed = false;
            let action = stream.enter(|instance| instance.on_headers(stream, Side::Response, number, is_end));
            // Who is gone has nothing to say; whether that is the end of it, the verdict knows.
            let action = action.unwrap_or(Action::Continue);
            match self.head(stream, Side::Response, body, action, is_end).await? {
                Step::Next(next) => body = next,
                Step::Answer(local) => {
                    (head, body) = self.local(local).into_parts();
                    self.length = None;
                    extensions = std::mem::take(&mut head.extensions);
                    self.exchange.messages().set_response(head);
                }
            }
        }
        let mut begun = None;
        if self.looks_at(Side::Response) && !body.is_end_stream() {
            match self.hold(&mut body, Side::Response, false).await? {
                Ok(first) => begun = Some(first),
                Err(local) => {
                    let (mut head, local) = self.local(local).into_parts();
                    self.length = None;
                    extensions = std::mem::take(&mut head.extensions);
                    self.exchange.messages().set_response(head);
                    body = local;
                }
            }
        }
        let announced = self.announced(Side::Response);
        if let Some(first) = begun {
            body = Held::new(first, body, announced).boxed_unsync();
        }
        let keeps = self.streams.iter().any(|stream| stream.has.log || stream.has.response_body);
        let mut head = self.exchange.messages().let_response_go(keeps).ok_or_else(no_head)?;
        head.extensions = extensions;
        Ok(Response::from_parts(head, Outgoing { body, run: self }.boxed_unsync()))
    }
}

fn no_head() -> Failed {
    Failed::Head("it is not there any more".to_owned())
}

/// The end of an exchange, however it came to it.
impl Drop for Run {
    fn drop(&mut self) {
        self.exchange.messages().is_over = true;
        for stream in &self.streams {
            // Who is gone already has no end to be told of.
            let _ = stream.enter(|instance| instance.end(stream));
        }
    }
}

/// A body after a filter has seen its head.
enum Passing {
    Plain(Body),
    Filtered(Box<Filtered>),
}

impl Passing {
    fn resume(&mut self) {
        if let Self::Filtered(filtered) = self {
            filtered.resume();
        }
    }

    fn gather(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        match self {
            Self::Plain(_) => Poll::Pending,
            Self::Filtered(filtered) => filtered.gather(context),
        }
    }

    fn into_body(self) -> Body {
        match self {
            Self::Plain(body) => body,
            Self::Filtered(filtered) => filtered.boxed_unsync(),
        }
    }
}

/// The answer's body on its way out. The exchange ends with it.
struct Outgoing {
    body: Body,
    run: Run,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
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
