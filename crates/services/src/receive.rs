//! Reading an answer: content decoding, and counting every byte that comes out of it.
//!
//! The count is of decoded bytes and is taken as they arrive, so that neither a gigabyte nor a bomb of
//! a few kilobytes ever lies in memory beyond the allowance.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRAILER};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio_util::io::StreamReader;

use crate::body::{Body, Error};
use crate::call::Budget;
use crate::decompress::{ContentCoding, read_decoded};
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
}

/// Reads a whole body, and makes the headers say what was read.
pub(crate) async fn receive(headers: &mut HeaderMap, body: Body, budget: &Budget) -> Result<Bytes, Stopped> {
    strip_hop_by_hop(headers);
    headers.remove(TRAILER); // Trailers are not kept.
    match coding(headers) {
        Some(coding) if !body.is_end_stream() => {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            decode(coding, body, budget).await
        }
        _ => collect(body, budget).await,
    }
}

/// Keeps the frames of a body. One frame, which most are, is not copied; several are copied once, into room for all.
async fn collect(mut body: Body, budget: &Budget) -> Result<Bytes, Stopped> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut turn = Turn::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Stopped::Broken)?.into_data() else { continue };
        turn.took(data.len()).await;
        take(budget, data.len())?;
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

async fn decode(coding: ContentCoding, body: Body, budget: &Budget) -> Result<Bytes, Stopped> {
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let decoder = coding.decoder(StreamReader::new(stream));
    let decoded = read_decoded(decoder, |length| budget.take_received(length)).await;
    decoded.map_err(|error| Stopped::Broken(error.into()))?.ok_or(Stopped::Limit)
}

fn take(budget: &Budget, bytes: usize) -> Result<(), Stopped> {
    if budget.take_received(bytes as u64) { Ok(()) } else { Err(Stopped::Limit) }
}
