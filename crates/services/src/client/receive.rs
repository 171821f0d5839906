//! Reading and content decoding of a response, with a limit on the decoded size.
//!
//! Decoded bytes are counted as they are produced, so that neither a huge response nor a compression bomb
//! occupies memory beyond the allowance. An encoded body may be as long as the remaining allowance, and is
//! decoded when it is complete: the time that a service takes does not affect decoding.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRAILER};
use http_body::Body as _;
use http_body_util::BodyExt;
use offload::OffloadError;

use crate::body::decompress::{ContentCoding, DecoderPool, read_decoded};
use crate::body::{BodyBuffer, BodyError, StreamedServiceBody};
use crate::call::CallError;
use crate::call::RequestBudget;
use crate::coop::ByteTurn;
use crate::headers::strip_hop_by_hop;

/// The reason for not reading a response to its end.
pub(crate) enum ReceiveError {
    /// The allowance is used up, or the gateway holds too many bytes of responses.
    Limit(CallError),
    /// The response is incomplete, or its encoding is invalid.
    Broken(BodyError),
    /// The pool did not decode the response.
    Refused(OffloadError),
}

/// A complete body as received, possibly encoded.
pub(crate) struct ReceivedBody {
    bytes: Bytes,
    /// The content coding of the body. Encoded bodies are counted when they are decoded.
    coding: Option<ContentCoding>,
}

/// Reads a whole body, and changes the headers to match it once it is
/// [`decoded`](ReceivedBody::into_decoded).
pub(crate) async fn receive(
    headers: &mut HeaderMap,
    body: StreamedServiceBody,
    budget: &RequestBudget,
) -> Result<ReceivedBody, ReceiveError> {
    strip_hop_by_hop(headers);
    headers.remove(TRAILER); // Trailers are dropped.
    match declared_coding(headers) {
        Some(coding) if !body.is_end_stream() => {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            let left = budget.received_left();
            let mut encoded = 0_u64;
            let bytes = collect_frames(body, |length| {
                encoded = encoded.saturating_add(length);
                match encoded <= left {
                    true => budget.hold_received(length).map_err(Into::into),
                    false => Err(CallError::Limit("limit-received")),
                }
            });
            Ok(ReceivedBody { bytes: bytes.await?, coding: Some(coding) })
        }
        _ => {
            let bytes = collect_frames(body, |length| budget.receive(length)).await?;
            Ok(ReceivedBody { bytes, coding: None })
        }
    }
}

impl ReceivedBody {
    /// Returns the decoded body. Large bodies are decoded in the pool, if there is one.
    pub(crate) async fn into_decoded<'p>(
        self,
        budget: &Arc<RequestBudget>,
        pool: impl FnOnce() -> Option<DecoderPool<'p>>,
    ) -> Result<Bytes, ReceiveError> {
        let Self { bytes, coding } = self;
        let Some(coding) = coding else { return Ok(bytes) };
        let length = bytes.len();
        let decoding = || decode_counted(coding, bytes.clone(), Arc::clone(budget));
        let Some(pool) = pool().filter(|_| !coding.is_decoded_inline(length)) else {
            // Boxed, since most responses are not encoded.
            return Box::pin(decoding()).await;
        };
        let is_shared = pool.payer.is_exempt();
        match Box::pin(pool.run_paced(length, decoding())).await {
            Ok(decoded) => decoded,
            // The queue of the first caller must not fail the others.
            Err(OffloadError::QuotaExceeded { .. } | OffloadError::QueueFull) if is_shared => {
                Box::pin(decoding()).await
            }
            Err(refused) => Err(ReceiveError::Refused(refused)),
        }
    }
}

/// Collects the frames of a body. A single frame, the common case, is not copied. Yields to other tasks
/// between frames that are available at once, and while it joins them.
async fn collect_frames(
    mut body: StreamedServiceBody,
    mut take: impl FnMut(u64) -> Result<(), CallError>,
) -> Result<Bytes, ReceiveError> {
    let (mut buffer, mut turn) = (BodyBuffer::default(), ByteTurn::default());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReceiveError::Broken)?.into_data() else { continue };
        turn.consume_bytes(data.len()).await;
        take(data.len() as u64).map_err(ReceiveError::Limit)?;
        buffer.put_and_reserve(data, || body.size_hint().lower());
    }
    Ok(buffer.finish().await)
}

/// Returns the declared coding. Unknown codings, and those that were not requested, are passed on with their
/// header.
fn declared_coding(headers: &HeaderMap) -> Option<ContentCoding> {
    let name = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    ContentCoding::from_name(&name).filter(|coding| *coding != ContentCoding::Deflate)
}

async fn decode_counted(
    coding: ContentCoding,
    encoded: Bytes,
    budget: Arc<RequestBudget>,
) -> Result<Bytes, ReceiveError> {
    let decoder = coding.decoder(&*encoded);
    let mut limit = None;
    let decoded = read_decoded(decoder, |length| {
        limit = budget.receive(length).err();
        limit.is_none()
    });
    let decoded = decoded.await.map_err(|error| ReceiveError::Broken(error.into()))?;
    match limit {
        Some(error) => Err(ReceiveError::Limit(error)),
        None => Ok(decoded.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use async_compression::tokio::write::BrotliEncoder;
    use futures_util::FutureExt;
    use offload::{JobRequest, OffloadConfig, OffloadPool, QuotaKey};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::body::from_pieces;
    use crate::coop::TURN_BYTES;

    #[tokio::test]
    async fn collects_a_long_body_in_short_steps() {
        const COUNT: usize = 512;
        let frame = Bytes::from(vec![b'x'; TURN_BYTES / 2]);
        let length = COUNT * frame.len();
        let mut collecting =
            pin!(collect_frames(from_pieces(length, std::iter::repeat_n(frame, COUNT)), |_| Ok(())));
        let mut polls = 0;
        let text = poll_fn(|context| {
            polls += 1;
            collecting.as_mut().poll(context)
        });
        let text = text.await.ok().unwrap();
        assert!(text.len() == length && text.iter().all(|byte| *byte == b'x'));
        // Half of the steps read the frames, and the other half join them.
        assert!(polls > length / TURN_BYTES * 3 / 2, "{polls} polls");
    }

    #[tokio::test]
    async fn does_not_copy_a_single_frame() {
        let frame = Bytes::from(vec![b'x'; 1 << 20]);
        let text = collect_frames(crate::body::full(frame.clone()), |_| Ok(())).await.ok().unwrap();
        assert_eq!(text.as_ptr(), frame.as_ptr());
    }

    #[tokio::test]
    async fn decodes_a_shared_response_in_place_if_the_pool_refuses_it() {
        let pool = OffloadPool::start(OffloadConfig { threads: 1, ..OffloadConfig::default() }).unwrap();
        let payer = QuotaKey::new(&"payer");
        let hour = Duration::from_secs(3600);
        let deadline = Instant::now() + hour;
        let (release, wait) = mpsc::channel::<()>();
        let request =
            || JobRequest { kind: "test", payer: payer.for_responses(), estimate: Duration::ZERO, deadline };
        let mut queued = vec![pool.run(request(), move |_| wait.recv().is_ok()).boxed()];
        while queued.last_mut().unwrap().now_or_never().is_none() {
            queued.push(pool.run(request(), |_| true).boxed());
        }
        let text = b"a response ".repeat(100);
        let mut encoder = BrotliEncoder::new(Vec::new());
        encoder.write_all(&text).await.unwrap();
        encoder.shutdown().await.unwrap();
        let bytes = Bytes::from(encoder.into_inner());
        for (payer, is_decoded) in [(payer, false), (payer.exempt(), true)] {
            let budget = Arc::new(RequestBudget::new(hour, 1, 1 << 20, 1));
            let received = ReceivedBody { bytes: bytes.clone(), coding: Some(ContentCoding::Brotli) };
            let decoded =
                received.into_decoded(&budget, || Some(DecoderPool { pool: &pool, payer, deadline }));
            assert_eq!(decoded.await.ok().is_some_and(|decoded| decoded == text), is_decoded);
        }
        drop(release);
    }
}
