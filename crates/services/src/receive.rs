//! Reading and content decoding of a response, with a limit on the decoded size.
//!
//! Decoded bytes are counted as they are produced, so that neither a huge response nor a compression bomb
//! occupies memory beyond the allowance. An encoded body may be as long as the remaining allowance, and is
//! decoded when it is complete: the time that a service takes does not affect decoding.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRAILER};
use http_body::Body as _;
use http_body_util::BodyExt;
use offload::OffloadError;

use crate::body::{Body, Error};
use crate::call::Budget;
use crate::decompress::{ContentCoding, DecoderPool, read_decoded};
use crate::headers::strip_hop_by_hop;
use crate::turn::Turn;

/// The largest buffer to reserve in advance for a body, whatever its declared length.
const ROOM: u64 = 1 << 20;
/// The reason for not reading a response to its end.
pub(crate) enum Stopped {
    /// The allowance is used up.
    Limit,
    /// The response is incomplete, or its encoding is invalid.
    Broken(Error),
    /// The pool did not decode the response.
    Refused(OffloadError),
}

/// A complete body as received, possibly encoded.
pub(crate) struct Received {
    bytes: Bytes,
    /// The content coding of the body. Encoded bodies are counted when they are decoded.
    coding: Option<ContentCoding>,
}

/// Reads a whole body, and changes the headers to match it once it is [`decoded`](Received::decoded).
pub(crate) async fn receive(
    headers: &mut HeaderMap,
    body: Body,
    budget: &Budget,
) -> Result<Received, Stopped> {
    strip_hop_by_hop(headers);
    headers.remove(TRAILER); // Trailers are dropped.
    match coding(headers) {
        Some(coding) if !body.is_end_stream() => {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            let left = budget.received_left();
            let mut encoded = 0_u64;
            let bytes = collect(body, |length| {
                encoded = encoded.saturating_add(length);
                encoded <= left
            });
            Ok(Received { bytes: bytes.await?, coding: Some(coding) })
        }
        _ => {
            let bytes = collect(body, |length| budget.take_received(length)).await?;
            Ok(Received { bytes, coding: None })
        }
    }
}

impl Received {
    /// Returns the decoded body. Large bodies are decoded in the pool, if there is one.
    pub(crate) async fn decoded(
        self,
        budget: &Arc<Budget>,
        pool: Option<DecoderPool<'_>>,
    ) -> Result<Bytes, Stopped> {
        let Self { bytes, coding } = self;
        let Some(coding) = coding else { return Ok(bytes) };
        let length = bytes.len();
        // Boxed, since most responses are not encoded.
        let decoding = Box::pin(decode(coding, bytes, Arc::clone(budget)));
        match pool {
            Some(pool) if !coding.is_short(length) => {
                pool.run_paced(length, decoding).await.map_err(Stopped::Refused)?
            }
            _ => decoding.await,
        }
    }
}

/// Collects the frames of a body. A single frame, the common case, is not copied; several are copied once.
async fn collect(mut body: Body, mut take: impl FnMut(u64) -> bool) -> Result<Bytes, Stopped> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut turn = Turn::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Stopped::Broken)?.into_data() else { continue };
        turn.took(data.len()).await;
        if !take(data.len() as u64) {
            return Err(Stopped::Limit);
        }
        if all.is_empty() && first.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                let to_come = body.size_hint().lower().min(ROOM) as usize;
                all.reserve(first.len() + data.len() + to_come);
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Returns the declared coding. Unknown codings, and those that were not requested, are passed on with their header.
fn coding(headers: &HeaderMap) -> Option<ContentCoding> {
    let name = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    ContentCoding::named(&name).filter(|coding| *coding != ContentCoding::Deflate)
}

async fn decode(coding: ContentCoding, encoded: Bytes, budget: Arc<Budget>) -> Result<Bytes, Stopped> {
    let decoder = coding.decoder(&*encoded);
    let decoded = read_decoded(decoder, |length| budget.take_received(length)).await;
    decoded.map_err(|error| Stopped::Broken(error.into()))?.ok_or(Stopped::Limit)
}
