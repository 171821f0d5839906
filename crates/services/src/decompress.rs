//! Undoing `Content-Encoding`, of requests and of answers.
//!
//! What comes out is bounded by its reader, and what a decoder keeps by the window that a zstd frame may ask for (RFC
//! 9659); brotli's own is 16 MiB at most. A small text can keep a decoder busy for long, by a bomb, by thousands of empty
//! members, or by a window that is zeroed first. So decoding is a job of the pool. What is short, and has no such window, is
//! decoded at once; a task that does so gives way after so much that went in, and after so much that came out.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, HeaderMap};
use offload::{JobContext, JobRequest, OffloadError, OffloadPool, QuotaKey};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, ReadBuf};

/// How much is decoded at a time.
const STEP: usize = 16 << 10;
/// How many steps a task takes before others have their turn: some tenths of a millisecond.
const STEPS: usize = 4;
/// How much a decoder is given before others have their turn: a member of gzip takes 20 bytes and some microseconds.
const PORTION: usize = 4 << 10;
/// The longest text that is decoded at once: some tenths of a millisecond, as answers of services mostly are.
const SHORT: usize = 16 << 10;
/// The CPU time that decoding is charged before it is known: for a job, and for each byte that went in.
const ESTIMATE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_nanos(50));
/// The largest window that a zstd frame may ask for, as a power of two: 8 MiB, as RFC 9659 has it.
const ZSTD_WINDOW: u32 = 23;

/// A coding that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Why a body can't be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// A coding that is not known, or several of them.
    #[error("the Content-Encoding `{0}` is not known")]
    UnknownCoding(String),
    /// The text is not what its coding says, or something follows it.
    #[error("the body is not what its Content-Encoding says")]
    Malformed,
    /// More than the limit came out.
    #[error("the body is larger than {0} bytes once it is decoded")]
    TooLarge(u64),
    /// It is long, and the pool has not decoded it.
    #[error(transparent)]
    Refused(#[from] OffloadError),
}

/// Where long texts are decoded: in this pool, at this payer's expense, until a deadline.
#[derive(Clone, Copy)]
pub struct DecoderPool<'a> {
    /// The pool.
    pub pool: &'a OffloadPool,
    /// Who pays.
    pub payer: QuotaKey,
    /// Until when the result is wanted.
    pub deadline: Instant,
}

impl DecoderPool<'_> {
    /// Decodes a text of so many bytes. A payer without quota is refused.
    async fn run<T: Send + 'static>(
        self,
        bytes: usize,
        decoding: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, OffloadError> {
        let request = self.request(self.payer, bytes);
        self.pool.run(request, |job| to_its_end(decoding, job)).await?.ok_or(OffloadError::DeadlineExceeded)
    }

    /// The same for what a service sent: a payer without quota waits.
    pub(crate) async fn run_paced<T: Send + 'static>(
        self,
        bytes: usize,
        decoding: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, OffloadError> {
        let request = self.request(self.payer.for_answers(), bytes);
        let job = |job: &JobContext| to_its_end(decoding, job);
        self.pool.run_paced(request, job).await?.ok_or(OffloadError::DeadlineExceeded)
    }

    fn request(&self, payer: QuotaKey, bytes: usize) -> JobRequest {
        let (job, byte) = ESTIMATE;
        let estimate = job + byte.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        JobRequest { kind: "decompress", payer, estimate, deadline: self.deadline }
    }
}

/// Polls what waits for nothing, but gives way, to its end; `None` once nobody wants the result.
fn to_its_end<T>(decoding: impl Future<Output = T>, job: &JobContext) -> Option<T> {
    let (mut decoding, mut context) = (pin!(decoding), Context::from_waker(Waker::noop()));
    while !job.is_cancelled() {
        if let Poll::Ready(decoded) = decoding.as_mut().poll(&mut context) {
            return Some(decoded);
        }
    }
    None
}

impl ContentCoding {
    /// The coding of this name (RFC 9110, 8.4.1), in lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Whether a text of so many bytes is decoded at once.
    pub(crate) fn is_short(self, bytes: usize) -> bool {
        self != Self::Brotli && bytes <= SHORT
    }

    /// A reader of what is decoded. All members and frames count: half a text must not pass for all of it.
    pub(crate) fn decoder<'a>(
        self,
        encoded: impl AsyncBufRead + Send + Unpin + 'a,
    ) -> Box<dyn AsyncRead + Send + Unpin + 'a> {
        let encoded = Portioned { encoded, given: 0 };
        match self {
            Self::Gzip => {
                let mut decoder = GzipDecoder::new(encoded);
                decoder.multiple_members(true);
                Box::new(decoder)
            }
            Self::Deflate => Box::new(ZlibDecoder::new(encoded)),
            Self::Brotli => Box::new(BrotliDecoder::new(encoded)),
            Self::Zstd => {
                let window = [DParameter::window_log_max(ZSTD_WINDOW)];
                let mut decoder = ZstdDecoder::with_params(encoded, &window);
                decoder.multiple_members(true);
                Box::new(decoder)
            }
        }
    }
}

/// Decodes a body as its headers say; in the pool, if one is given and it takes long. What comes out is bounded like what came
/// in.
///
/// # Errors
/// An unknown coding, several codings, a text that is not in its coding or is too large, and what the pool refuses.
pub async fn decompress(
    headers: &HeaderMap,
    body: Bytes,
    limit: u64,
    pool: Option<DecoderPool<'_>>,
) -> Result<Bytes, DecompressError> {
    let mut names = headers.get_all(CONTENT_ENCODING).iter();
    let Some(name) = names.next() else { return Ok(body) };
    let mut name = String::from_utf8_lossy(name.as_bytes()).trim().to_ascii_lowercase();
    if let Some(second) = names.next() {
        name = format!("{name}, {}", String::from_utf8_lossy(second.as_bytes()));
    }
    if name == "identity" {
        return Ok(body);
    }
    let Some(coding) = ContentCoding::named(&name) else { return Err(DecompressError::UnknownCoding(name)) };
    let bytes = body.len();
    // Boxed, since most requests need no decoder, and would keep the room for it otherwise.
    let decoding = Box::pin(decode(coding, body, limit));
    match pool {
        Some(pool) if !coding.is_short(bytes) => pool.run(bytes, decoding).await?,
        _ => decoding.await,
    }
}

async fn decode(coding: ContentCoding, body: Bytes, limit: u64) -> Result<Bytes, DecompressError> {
    let mut rest = &*body;
    let reader: &mut &[u8] = &mut rest;
    let mut left = limit;
    let decoded = read_decoded(coding.decoder(reader), |length| {
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    });
    let decoded = decoded.await.map_err(|_| DecompressError::Malformed)?;
    let decoded = decoded.ok_or(DecompressError::TooLarge(limit))?;
    if rest.is_empty() { Ok(decoded) } else { Err(DecompressError::Malformed) }
}

/// Reads all that a decoder gives; `None` once `take` refuses the length of a piece.
pub(crate) async fn read_decoded(
    mut decoder: Box<dyn AsyncRead + Send + Unpin + '_>,
    mut take: impl FnMut(u64) -> bool,
) -> io::Result<Option<Bytes>> {
    let mut all = BytesMut::new();
    for step in 1.. {
        all.reserve(STEP);
        match (&mut decoder).take(STEP as u64).read_buf(&mut all).await? {
            0 => break,
            read if !take(read as u64) => return Ok(None),
            _ => {}
        }
        if step % STEPS == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(Some(all.freeze()))
}

/// A reader that lets others have their turn after each portion.
struct Portioned<R> {
    encoded: R,
    given: usize,
}

impl<R: AsyncBufRead + Unpin> AsyncBufRead for Portioned<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.given >= PORTION {
            this.given = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let bytes = ready!(Pin::new(&mut this.encoded).poll_fill_buf(context))?;
        Poll::Ready(Ok(&bytes[..bytes.len().min(PORTION - this.given)]))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.given += amount;
        Pin::new(&mut self.encoded).consume(amount);
    }
}

impl<R: AsyncBufRead + Unpin> AsyncRead for Portioned<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.as_mut().poll_fill_buf(context))?;
        let length = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..length]);
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
