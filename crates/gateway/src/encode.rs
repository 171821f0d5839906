//! What becomes of an answer's text on its way out: first deduplicated (`dedup.rs`), then compressed, where the client
//! takes that (RFC 9110, sections 8.4 and 12).
//!
//! It comes after filters and before the log, so that filters see what handlers say, and the log counts what leaves. What
//! somebody else has settled stays as it is: what is encoded or cut already, digested, or must not be transformed.
//!
//! A text that is there already and not long is compressed in one go, with contexts that a thread keeps. Everything else
//! goes through in pieces, as it comes (`compressed.rs`).

mod accept;
mod coding;
mod compressed;
pub(crate) mod config;
mod dedup;
mod head;
#[cfg(test)]
mod tests;

use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use services::{Body, body};

use coding::Coding;
use compressed::Compressed;
use config::CompressConfig;
pub(crate) use dedup::Account;
use dedup::Forms;

use crate::client::Client;
use crate::config::RouteConfig;
use crate::unsent;

pub(crate) use head::vary;

/// What an encoder counts as while its answer is on the way: its window and its tables.
const ENCODER: u64 = 1 << 20;
/// A longer text is compressed in pieces, between which others have their turn.
const WHOLE: u64 = 64 << 10;

/// How the answers of a route are encoded.
#[derive(Clone, Debug)]
pub(crate) struct Encoding {
    dedups: bool,
    compress: Option<Compress>,
}

/// How they are compressed.
#[derive(Clone, Debug)]
struct Compress {
    /// What is shorter goes out as it is.
    min: u64,
    /// The best one first.
    codings: Vec<Coding>,
}

/// What a request says of the encoding of its answer.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    forms: Option<Forms>,
    coding: Option<Coding>,
    is_head: bool,
    /// The tags that the client has the answer under.
    known: Option<HeaderValue>,
}

impl Encoding {
    /// That of a route: what it says itself, or else all routes; `is_ours` where the gateway itself makes the answers.
    pub(crate) fn new(route: &RouteConfig, all: Option<&CompressConfig>, is_ours: bool) -> Self {
        Self { dedups: route.dedup, ..Self::plain(route.compress.as_ref().or(all), is_ours) }
    }

    /// That of answers in which nothing is worth deduplicating.
    pub(crate) fn plain(compress: Option<&CompressConfig>, is_ours: bool) -> Self {
        let options = match compress {
            Some(config) => config.options(),
            None => is_ours.then(Default::default),
        };
        let compress = options.map(|options| Compress { min: options.min.0, codings: options.codings });
        Self { dedups: false, compress }
    }

    /// What of a request decides on the encoding of its answer.
    pub(crate) fn asked<B>(&self, request: &Request<B>) -> Asked {
        let headers = request.headers();
        Asked {
            forms: if self.dedups { Forms::asked(headers) } else { None },
            coding: self.compress.as_ref().and_then(|compress| accept::coding(&compress.codings, headers)),
            is_head: request.method() == Method::HEAD,
            known: headers.get(header::IF_NONE_MATCH).cloned(),
        }
    }

    /// The answer as it goes out. `account` says who pays for what takes long, and until when that may be waited for.
    pub(crate) async fn encode<'a>(
        &self,
        asked: Asked,
        account: impl FnOnce() -> Account<'a>,
        mut response: Response<Body>,
        client: &Client,
    ) -> Response<Body> {
        if response.status() == StatusCode::NOT_MODIFIED {
            let headers = response.headers_mut();
            asked.known.iter().for_each(|known| head::name_as_known(headers, known));
            self.vary(headers);
            return response;
        }
        if self.dedups {
            response = match asked.forms.filter(|_| !asked.is_head) {
                // Boxed, since other requests would keep the room for it otherwise.
                Some(forms) => Box::pin(dedup::apply(forms, account(), response)).await,
                None => dedup::offered(asked.is_head, response),
            };
        }
        let response = unsent::keep(response, client);
        match &self.compress {
            Some(compress) => compress.apply(&asked, response, client),
            None => response,
        }
    }

    /// Says of a 304 what its 200 would say: a cache keeps that answer under what is said here (RFC 9110, section 15.4.5).
    fn vary(&self, headers: &mut HeaderMap) {
        if self.dedups {
            head::vary(headers, "accept");
        }
        if self.compress.is_some() {
            head::vary(headers, "accept-encoding");
        }
    }
}

impl Compress {
    fn apply(&self, asked: &Asked, mut response: Response<Body>, client: &Client) -> Response<Body> {
        let size = size(&response, asked.is_head);
        if size.is_some_and(|size| size < self.min.max(1))
            || !head::is_open(&response)
            || !head::is_worth(response.headers())
        {
            return response;
        }
        head::vary(response.headers_mut(), "accept-encoding");
        match asked.coding {
            None => response,
            Some(coding) if asked.is_head => {
                head::encode(response.headers_mut(), coding);
                response.map(|_| body::empty())
            }
            Some(coding) => compressed(coding, size, response, client),
        }
    }
}

/// How long the answer's text is, where that is known.
fn size(response: &Response<Body>, is_head: bool) -> Option<u64> {
    let said = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    if is_head { said() } else { response.body().size_hint().exact() }
}

/// The answer with its text compressed: at once where it is there and not long, or else as it comes.
/// It stays as it is where the client has yet to take too much already.
fn compressed(
    coding: Coding,
    size: Option<u64>,
    response: Response<Body>,
    client: &Client,
) -> Response<Body> {
    let (mut head, mut body) = response.into_parts();
    let is_short = size.is_some_and(|size| size <= WHOLE);
    let first = if is_short { body.frame().now_or_never().flatten() } else { None };
    if body.is_end_stream()
        && let Some(Ok(frame)) = &first
        && let Some(text) = frame.data_ref()
    {
        let Some(shorter) = coding.whole(text) else {
            return Response::from_parts(head, body::full(text.clone()));
        };
        head::encode(&mut head.headers, coding);
        return Response::from_parts(head, body::full(shorter));
    }
    let Ok(permit) = client.keep(ENCODER) else {
        let frames = stream::iter(first).chain(BodyStream::new(body));
        return Response::from_parts(head, StreamBody::new(frames).boxed_unsync());
    };
    head::encode(&mut head.headers, coding);
    Response::from_parts(head, Compressed::new(coding, size, first, body, permit).boxed_unsync())
}
