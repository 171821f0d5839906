//! Deduplication: on request, a JSON response is sent with each repeated value written once
//! (docs/deduplication.md).
//!
//! A handler may attach a tree that it built the response from, and then the body isn't read. Other responses
//! have to be read to their end, and count as unsent bytes of the client meanwhile; one that is too long or
//! too slow for that, or whose client has too many unsent bytes, passes through unchanged.

use std::time::{Duration, Instant};

use bytes::Bytes;
use dedup::{DedupForm, DedupLimits};
use futures_util::{StreamExt, stream};
use handler::HandlerResponse;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use offload::{JobRequest, OffloadPool, QuotaKey};
use services::body::{BodyBuffer, BodyError};
use services::coop::ByteTurn;
use services::{StreamedServiceBody, accept, body};
use tokio::time::timeout_at;

use super::head;
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::unsent_bytes;
use crate::limits::client_limiter::UnsentPermit;

/// The length up to which texts and pieces are not counted as unsent bytes.
const UNCOUNTED_LENGTH: usize = unsent_bytes::UNCOUNTED_BYTES as usize;

/// The length from which a text is processed in the offload pool. A byte of a text of tiny objects takes 30
/// ns, and that of an ordinary one a nanosecond.
const OFFLOAD_THRESHOLD: u64 = 32 << 10;
/// The estimate of CPU time, charged in advance: the bytes per nanosecond.
const BYTES_PER_NANO: f64 = 0.1;

/// The timeout for processing one text.
const DEDUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The pool that processes a long text, and the quota it is charged to.
pub(crate) struct DedupAccount<'a> {
    pub(crate) pool: &'a OffloadPool,
    pub(crate) quota_key: QuotaKey,
    /// The deadline of the response.
    pub(crate) deadline: Option<Instant>,
}

/// The accepted forms, with their weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedForms {
    graphql: u16,
    json: u16,
}

impl AcceptedForms {
    /// Returns the forms that are preferred at least as much as plain JSON.
    pub(super) fn from_accept(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(ACCEPT).iter();
        if !values.any(|value| value.as_bytes().windows(5).any(|part| part.eq_ignore_ascii_case(b"dedup"))) {
            return None;
        }
        let weight = |kind| accept::item_weight(headers, ACCEPT, &[kind]).unwrap_or(0);
        let plain = weight("application/json").max(weight("application/graphql-response+json")).max(1);
        let liked = |kind| Some(weight(kind)).filter(|weight| *weight >= plain).unwrap_or(0);
        let forms = Self {
            graphql: liked(media_type_name(DedupForm::GraphQl)),
            json: liked(media_type_name(DedupForm::Json)),
        };
        (forms.graphql > 0 || forms.json > 0).then_some(forms)
    }

    /// Selects the form of a response.
    fn select_form<B>(self, response: &Response<B>) -> Option<DedupForm> {
        let is_graphql =
            head::media_type(response.headers()).eq_ignore_ascii_case("application/graphql-response+json");
        let form = match self.graphql.cmp(&self.json) {
            std::cmp::Ordering::Equal if is_graphql => DedupForm::GraphQl,
            std::cmp::Ordering::Greater => DedupForm::GraphQl,
            _ => DedupForm::Json,
        };
        // Clients of GraphQL accept other statuses only with the standard media type.
        (form == DedupForm::Json || response.status() == StatusCode::OK).then_some(form)
    }
}

/// Adds `Accept` to the `Vary` header if another client could receive another form.
pub(super) fn vary_if_dedupable(is_head: bool, response: &mut Response<StreamedServiceBody>) {
    if is_dedupable(is_head, response) {
        head::add_vary(response.headers_mut(), "accept");
    }
}

/// Deduplicates the response if that makes it shorter.
pub(super) async fn dedup_response(
    forms: AcceptedForms,
    account: DedupAccount<'_>,
    mut answer: HandlerResponse,
    client: &ClientInfo,
) -> HandlerResponse {
    let limits = DedupLimits::default();
    let response = &answer.response;
    let Some(form) = forms.select_form(response).filter(|_| is_dedupable(false, response)) else {
        return answer;
    };
    if let Some(tree) = answer.json_tree.take() {
        let bytes = response.body().size_hint().lower();
        let encoded = run_computation(bytes, &account, move || dedup::encode(&tree, form, &limits)).await;
        let Some(tree) = encoded else { return answer };
        // All of it was written anew, and its sources are released.
        let length = tree.len();
        let body = body::from_pieces(length, tree.pieces_with_len(length));
        let response = replace_body(form, Some(body), answer.response);
        return HandlerResponse { response, held_bytes: length as u64, ..answer };
    }
    let (head, body) = answer.response.into_parts();
    let response = match read_body(body, limits.max, account.deadline, client).await {
        Err(body) => Response::from_parts(head, body),
        Ok(text) => {
            let length = text.len();
            let response = Response::from_parts(head, body::from_pieces(length, split_small(text.clone())));
            let encode = move || dedup::encode_text(&text, form, &limits).ok().flatten();
            replace_body(
                form,
                run_computation(length as u64, &account, encode).await.map(body::full),
                response,
            )
        }
    };
    HandlerResponse { response, ..answer }
}

/// Whether the response can be deduplicated: successful JSON that may be transformed, of suitable length.
fn is_dedupable(is_head: bool, response: &Response<StreamedServiceBody>) -> bool {
    let limits = DedupLimits::default();
    let size = match (is_head, super::body_size(response, is_head)) {
        (true, Some(size)) => SizeHint::with_exact(size),
        (true, None) => SizeHint::default(),
        (false, _) => response.body().size_hint(),
    };
    if size.lower() > limits.max as u64 || size.upper().is_some_and(|size| size < limits.min as u64) {
        return false;
    }
    let kind = head::media_type(response.headers());
    let is_json = kind.eq_ignore_ascii_case("application/json") || head::has_suffix(kind, "+json");
    let is_done = head::has_suffix(kind, "dedup+json");
    is_json && !is_done && response.status().is_success() && head::is_transformable(response)
}

/// The media type of a form, without parameters.
fn media_type_name(form: DedupForm) -> &'static str {
    dedup::media_type(form).split(';').next().unwrap_or_default()
}

fn replace_body(
    form: DedupForm,
    encoded: Option<StreamedServiceBody>,
    mut response: Response<StreamedServiceBody>,
) -> Response<StreamedServiceBody> {
    let Some(encoded) = encoded else { return response };
    head::mark_changed(response.headers_mut());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(dedup::media_type(form)));
    response.map(|_| encoded)
}

/// Runs a computation for a text of `bytes` bytes. `None` if the text is long and the pool can't process it
/// in time or the payer's quota is exhausted.
async fn run_computation<T: Send + 'static>(
    bytes: u64,
    account: &DedupAccount<'_>,
    compute: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    if bytes <= OFFLOAD_THRESHOLD {
        return compute();
    }
    let &DedupAccount { pool, quota_key: payer, deadline: until } = account;
    let deadline = until.unwrap_or_else(|| Instant::now() + DEDUP_TIMEOUT);
    let estimate = Duration::from_nanos((bytes as f64 / BYTES_PER_NANO) as u64);
    let request = JobRequest { kind: "dedup", payer, estimate, deadline };
    pool.run(request, move |_| compute()).await.ok().flatten()
}

/// Reads a text to its end. A long one has permits for its bytes, until its last copy is dropped. A body that
/// is too long, too slow or broken, or whose bytes exceed a limit of the client, is returned, to be passed
/// through. Its chunks are merged, since a service could send a thousand frames of a kilobyte.
async fn read_body(
    mut body: StreamedServiceBody,
    limit: usize,
    until: Option<Instant>,
    client: &ClientInfo,
) -> Result<Bytes, StreamedServiceBody> {
    let (mut text, mut turn) = (BodyBuffer::default(), ByteTurn::default());
    let (mut permits, mut counted) = (Vec::new(), 0);
    let last = loop {
        let next = match until {
            Some(until) => timeout_at(until.into(), body.frame()).await,
            None => Ok(body.frame().await),
        };
        let Ok(next) = next else { break None };
        match next.map(|frame| frame.map(Frame::into_data)) {
            None => return Ok(attach_permits(permits, text.finish().await)),
            Some(Ok(Ok(data))) => {
                turn.consume_bytes(data.len()).await;
                let length = text.len() + data.len();
                if length > limit {
                    break Some(Ok(Frame::data(data)));
                }
                if length > counted.max(UNCOUNTED_LENGTH) {
                    let more = (length - counted).max(UNCOUNTED_LENGTH);
                    let Ok(permit) = client.reserve_buffered(more as u64) else {
                        break Some(Ok(Frame::data(data)));
                    };
                    permits.extend(permit);
                    counted += more;
                }
                text.put(data);
            }
            Some(Ok(Err(trailers))) => break Some(Ok(trailers)),
            Some(Err(error)) => break Some(Err(error)),
        }
    };
    Err(resume_body(attach_permits(permits, text.finish().await), last, body))
}

/// Attaches the permits of a text.
fn attach_permits(permits: Vec<UnsentPermit>, text: Bytes) -> Bytes {
    if permits.is_empty() { text } else { unsent_bytes::attach(permits, text) }
}

/// Splits a text into pieces that are too small to be counted beside its permits.
fn split_small(mut text: Bytes) -> impl Iterator<Item = Bytes> + Send + Unpin + 'static {
    std::iter::from_fn(move || (!text.is_empty()).then(|| text.split_to(text.len().min(UNCOUNTED_LENGTH))))
}

/// Returns the body with the part that was already read in front.
fn resume_body(
    text: Bytes,
    last: Option<Result<Frame<Bytes>, BodyError>>,
    body: StreamedServiceBody,
) -> StreamedServiceBody {
    let read = split_small(text).map(|piece| Ok(Frame::data(piece))).chain(last);
    StreamBody::new(stream::iter(read).chain(BodyStream::new(body))).boxed_unsync()
}
