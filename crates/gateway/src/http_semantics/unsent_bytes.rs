//! Response bytes that clients have yet to receive, counted by connection, by address and in total (see
//! [`crate::limits::client_limiter`]).
//!
//! A body is polled for its next piece once the previous one is sent, so a piece counts from when it is
//! returned until the next poll. Small pieces are not counted, and most responses have no others: an HTTP/1.1
//! connection has one at a time, and HTTP/2 counts its answers itself (`server/http2/stream.rs`). A response
//! that its handler composed from data in memory ([`HandlerResponse::held_bytes`]) counts as a whole until
//! its last piece is sent. A response that is read before it is sent counts from then on (`encode/dedup.rs`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use handler::HandlerResponse;
use http::{HeaderValue, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use services::StreamedServiceBody;
use services::body::{BodyError, empty};

use crate::http_semantics::client::ClientInfo;
use crate::limits::client_limiter::{LimitReached, UnsentPermit};

/// The size up to which pieces are not counted.
pub(crate) const UNCOUNTED_BYTES: u64 = 16 << 10;

/// A body whose pieces are counted.
struct CountedBody {
    body: StreamedServiceBody,
    client: ClientInfo,
    /// The permit for the current piece.
    permit: Option<UnsentPermit>,
    /// The permit for all the bytes that the response holds.
    response_permit: Option<UnsentPermit>,
    /// Whether the pieces are included in the bytes that the response holds.
    is_counted_whole: bool,
    /// The limit that the bytes of the response would exceed.
    refusal: Option<LimitReached>,
}

/// Data with the permit that counts it, which lasts as long as the data.
struct PermittedData<T, P> {
    data: T,
    _permit: P,
}

/// Attaches a permit to bytes.
pub(crate) fn attach(permit: impl Send + 'static, data: Bytes) -> Bytes {
    Bytes::from_owner(PermittedData { data, _permit: permit })
}

/// Attaches a permit to a field's value, until its head is encoded. The value becomes sensitive, since HPACK
/// keeps copies of others.
pub(crate) fn attach_to_value(permit: impl Send + 'static, value: &mut HeaderValue) {
    let data = Bytes::from_owner(PermittedData { data: value.clone(), _permit: permit });
    // The text of a value is always valid.
    if let Ok(mut permitted) = HeaderValue::from_maybe_shared(data) {
        permitted.set_sensitive(true);
        *value = permitted;
    }
}

/// Wraps the response's body to count its bytes. Leaves small responses as they are. Drops the response's
/// tree, which only deduplication uses and which would otherwise outlive the body.
pub(crate) fn count_unsent(answer: HandlerResponse, client: &ClientInfo) -> Response<StreamedServiceBody> {
    let HandlerResponse { response, held_bytes: held, .. } = answer;
    let size = response.body().size_hint();
    if held <= UNCOUNTED_BYTES && size.upper().is_some_and(|size| size <= UNCOUNTED_BYTES) {
        return response;
    }
    let (unsent_permit, refusal) = match held {
        0..=UNCOUNTED_BYTES => (None, None),
        held => client.reserve_unsent(held).map_or_else(|limit| (None, Some(limit)), |permit| (permit, None)),
    };
    let is_held = unsent_permit.is_some() && size.exact().is_some();
    let client = client.clone();
    response.map(|body| {
        CountedBody {
            body,
            client,
            permit: None,
            response_permit: unsent_permit,
            is_counted_whole: is_held,
            refusal,
        }
        .boxed_unsync()
    })
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.permit = None;
        if let Some(limit) = self.refusal {
            self.body = empty();
            return Poll::Ready(Some(Err(limit.into())));
        }
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else {
            return Poll::Ready(None);
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        let size = data.len() as u64;
        if size > UNCOUNTED_BYTES && !self.is_counted_whole {
            self.permit = self.client.reserve_unsent(size)?;
        }
        let is_last = self.body.is_end_stream();
        let data = if is_last { self.attach_permits(data) } else { data };
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.refusal.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl CountedBody {
    /// Attaches the permits to the last piece, since the body is not polled again after it.
    fn attach_permits(&mut self, data: Bytes) -> Bytes {
        let permits = [self.permit.take(), self.response_permit.take()];
        if permits.iter().all(Option::is_none) {
            return data;
        }
        attach(permits, data)
    }
}

impl<T: AsRef<[u8]>, P> AsRef<[u8]> for PermittedData<T, P> {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::JsonTree;
    use services::body;

    use super::*;

    const PIECE: usize = 8 << 10;

    /// Returns a response in small pieces that holds this number of bytes.
    fn response_holding(bytes: usize) -> HandlerResponse {
        let pieces = std::iter::repeat_n(Bytes::from(vec![b'x'; PIECE]), bytes / PIECE);
        let response = Response::new(body::from_pieces(bytes, pieces));
        HandlerResponse { held_bytes: bytes as u64, ..response.into() }
    }

    async fn is_refused(response: Response<StreamedServiceBody>) -> bool {
        let collected = response.into_body().collect().await;
        collected.is_err_and(|error| error.is::<LimitReached>())
    }

    #[tokio::test]
    async fn counts_a_composed_response_until_its_last_piece_is_dropped() {
        let client = ClientInfo::with_unsent_limit(100 << 10);
        let mut first = count_unsent(response_holding(64 << 10), &client).into_body();
        assert!(
            is_refused(count_unsent(response_holding(64 << 10), &client)).await,
            "nothing of the first was taken"
        );
        assert!(
            !is_refused(count_unsent(response_holding(32 << 10), &client)).await,
            "there is room for this one"
        );
        let mut last = Bytes::new();
        while let Some(frame) = first.frame().await {
            last = frame.unwrap().into_data().unwrap();
        }
        drop(first);
        assert!(
            is_refused(count_unsent(response_holding(64 << 10), &client)).await,
            "the last piece is not dropped yet"
        );
        drop(last);
        assert!(!is_refused(count_unsent(response_holding(64 << 10), &client)).await);
    }

    #[tokio::test]
    async fn counts_a_response_of_one_piece_until_it_is_dropped() {
        let client = ClientInfo::with_unsent_limit(100 << 10);
        let whole = || count_unsent(Response::new(body::full(vec![b'x'; 64 << 10])).into(), &client);
        let piece = whole().into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len(), 64 << 10);
        assert!(is_refused(whole()).await);
        drop(piece);
        assert!(!is_refused(whole()).await);
    }

    #[tokio::test]
    async fn counts_a_short_response_that_holds_many_bytes() {
        let client = ClientInfo::with_unsent_limit(100 << 10);
        let short = || {
            let response = Response::new(body::full(vec![b'x'; PIECE]));
            count_unsent(HandlerResponse { held_bytes: 64 << 10, ..response.into() }, &client)
        };
        let _first = short();
        assert!(is_refused(short()).await);
    }

    #[test]
    fn a_tree_does_not_outlive_the_body() {
        let items: Arc<[JsonTree]> = [JsonTree::NULL].into();
        let json_tree = Some(JsonTree::Array(Arc::clone(&items)));
        let answer = HandlerResponse { json_tree, ..Response::new(empty()).into() };
        let _response = count_unsent(answer, &ClientInfo::for_tests());
        assert_eq!(Arc::strong_count(&items), 1);
    }
}
