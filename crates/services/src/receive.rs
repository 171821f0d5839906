//! Reading an answer, and content decoding, counting every byte that comes out of it.
//!
//! The count is of decoded bytes and is taken as they come out, so that neither a gigabyte nor a bomb of
//! a few kilobytes ever lies in memory beyond the allowance. What is encoded may be as long as what is left of that, and
//! is decoded when all of it is there: how long a service may take has nothing to do with it.

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

/// The most room that is made for a body before it comes, whatever length it claims to have.
const ROOM: u64 = 1 << 20;
/// Why an answer was not read to its end.
pub(crate) enum Stopped {
    /// The allowance is used up.
    Limit,
    /// The service broke off, or its encoding is broken.
    Broken(Error),
    /// The pool has not decoded it.
    Refused(OffloadError),
}

/// A whole body, as it came.
pub(crate) struct Received {
    bytes: Bytes,
    /// How it is encoded, and has yet to be counted.
    coding: Option<ContentCoding>,
}

/// Reads a whole body, and makes the headers say what it will be once it is [`decoded`](Received::decoded).
pub(crate) async fn receive(
    headers: &mut HeaderMap,
    body: Body,
    budget: &Budget,
) -> Result<Received, Stopped> {
    strip_hop_by_hop(headers);
    headers.remove(TRAILER); // Trailers are not kept.
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
    /// What was sent; decoded in the pool, if one is given and it takes long.
    pub(crate) async fn decoded(
        self,
        budget: &Arc<Budget>,
        pool: Option<DecoderPool<'_>>,
    ) -> Result<Bytes, Stopped> {
        let Self { bytes, coding } = self;
        let Some(coding) = coding else { return Ok(bytes) };
        let length = bytes.len();
        // Boxed, since most answers are not encoded.
        let decoding = Box::pin(decode(coding, bytes, Arc::clone(budget)));
        match pool {
            Some(pool) if !coding.is_short(length) => {
                pool.run_paced(length, decoding).await.map_err(Stopped::Refused)?
            }
            _ => decoding.await,
        }
    }
}

/// Keeps the frames of a body. One frame, which most are, is not copied; several are copied once, into room for all.
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

/// The coding that the service says it used. What is unknown, or was not asked for, is passed on with its header.
fn coding(headers: &HeaderMap) -> Option<ContentCoding> {
    let name = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    ContentCoding::named(&name).filter(|coding| *coding != ContentCoding::Deflate)
}

async fn decode(coding: ContentCoding, encoded: Bytes, budget: Arc<Budget>) -> Result<Bytes, Stopped> {
    let decoder = coding.decoder(&*encoded);
    let decoded = read_decoded(decoder, |length| budget.take_received(length)).await;
    decoded.map_err(|error| Stopped::Broken(error.into()))?.ok_or(Stopped::Limit)
}
