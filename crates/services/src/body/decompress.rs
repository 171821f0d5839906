//! Content decoding (`Content-Encoding`) of requests and responses.
//!
//! Readers limit the decoded size. A decoder's own memory is limited by the window that a zstd frame may
//! request (RFC 9659); brotli's window is 16 MiB at most. A small text can keep a decoder busy for long: by a
//! compression bomb, by thousands of empty members, or by a window that is zeroed first. Decoding is
//! therefore a job of the pool. Short texts that cannot request such a window are decoded inline; the task
//! yields after a number of bytes of input and of output.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap};
use offload::{JobContext, JobRequest, OffloadError, OffloadPool, QuotaKey};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, ReadBuf};

use super::BodyBuffer;

/// The number of bytes decoded at a time.
const STEP_BYTES: usize = 16 << 10;
/// The number of steps before the task yields: some tenths of a millisecond.
const STEPS_PER_YIELD: usize = 4;
/// The number of input bytes before the task yields: a gzip member takes 20 bytes and some microseconds.
const INPUT_PORTION: usize = 4 << 10;
/// The longest text that is decoded inline: some tenths of a millisecond. Most responses of services are
/// shorter.
const MAX_INLINE_BYTES: usize = 16 << 10;
/// The estimated CPU time that decoding is charged in advance: per job, and per byte of input.
const ESTIMATE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_nanos(50));
/// The largest window that a zstd frame may request, as a power of two: 8 MiB, as in RFC 9659.
const ZSTD_WINDOW: u32 = 23;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// An error from decoding a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// An unknown coding, or several codings.
    #[error("the Content-Encoding `{0}` is not known")]
    UnknownCoding(String),
    /// The text is invalid in its coding, or followed by other data.
    #[error("the body is not valid in its Content-Encoding")]
    Malformed,
    /// The decoded text exceeds the limit.
    #[error("the body is larger than {0} bytes when decoded")]
    TooLarge(u64),
    /// The pool did not decode a long text.
    #[error(transparent)]
    Refused(#[from] OffloadError),
}

/// The pool that decodes long texts, the account that is charged, and the deadline.
#[derive(Clone, Copy)]
pub struct DecoderPool<'a> {
    /// The pool.
    pub pool: &'a OffloadPool,
    /// The account that is charged.
    pub payer: QuotaKey,
    /// The deadline of the result.
    pub deadline: Instant,
}

impl DecoderPool<'_> {
    /// Decodes a text of `bytes` bytes. Fails if the payer's quota is used up.
    async fn run<T: Send + 'static>(
        self,
        bytes: usize,
        decoding: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, OffloadError> {
        let request = self.job_request(self.payer, bytes);
        self.pool.run(request, |job| poll_to_end(decoding, job)).await?.ok_or(OffloadError::DeadlineExceeded)
    }

    /// Like `run`, for a service's response: waits if the payer's quota is used up.
    pub(crate) async fn run_paced<T: Send + 'static>(
        self,
        bytes: usize,
        decoding: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, OffloadError> {
        let request = self.job_request(self.payer.for_responses(), bytes);
        let job = |job: &JobContext| poll_to_end(decoding, job);
        self.pool.run_paced(request, job).await?.ok_or(OffloadError::DeadlineExceeded)
    }

    fn job_request(&self, payer: QuotaKey, bytes: usize) -> JobRequest {
        let (job, byte) = ESTIMATE;
        let estimate = job + byte.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        JobRequest { kind: "decompress", payer, estimate, deadline: self.deadline }
    }
}

/// Polls to its end a future that yields but waits for nothing; returns `None` once the job is cancelled.
fn poll_to_end<T>(decoding: impl Future<Output = T>, job: &JobContext) -> Option<T> {
    let (mut decoding, mut context) = (pin!(decoding), Context::from_waker(Waker::noop()));
    while !job.is_cancelled() {
        if let Poll::Ready(decoded) = decoding.as_mut().poll(&mut context) {
            return Some(decoded);
        }
    }
    None
}

impl ContentCoding {
    /// Returns the coding of this lower-case name (RFC 9110, section 8.4.1).
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Whether a text of this length is decoded inline.
    pub(crate) fn is_decoded_inline(self, bytes: usize) -> bool {
        self != Self::Brotli && bytes <= MAX_INLINE_BYTES
    }

    /// Returns a reader of the decoded text. Decodes all members and frames, so that a part of the text never
    /// passes for all of it.
    pub(crate) fn decoder<'a>(
        self,
        encoded: impl AsyncBufRead + Send + Unpin + 'a,
    ) -> Box<dyn AsyncRead + Send + Unpin + 'a> {
        let encoded = PortionedReader { encoded, portion_bytes: 0 };
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

/// Decodes a body according to its headers; in the pool, if one is given and the body is long. `limit`
/// applies to the decoded size.
///
/// # Errors
/// An unknown coding, several codings, an invalid or too large text, and errors of the pool.
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
    let Some(coding) = ContentCoding::from_name(&name) else {
        return Err(DecompressError::UnknownCoding(name));
    };
    let bytes = body.len();
    // Boxed, since most requests need no decoder and would otherwise reserve the space for it.
    let decoding = Box::pin(decode_limited(coding, body, limit));
    match pool {
        Some(pool) if !coding.is_decoded_inline(bytes) => pool.run(bytes, decoding).await?,
        _ => decoding.await,
    }
}

async fn decode_limited(coding: ContentCoding, body: Bytes, limit: u64) -> Result<Bytes, DecompressError> {
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

/// Reads the whole output of a decoder; returns `None` once `take` refuses the length of a piece.
pub(crate) async fn read_decoded(
    mut decoder: Box<dyn AsyncRead + Send + Unpin + '_>,
    mut take: impl FnMut(u64) -> bool,
) -> io::Result<Option<Bytes>> {
    let mut all = BodyBuffer::default();
    for step in 1.. {
        match (&mut decoder).take(STEP_BYTES as u64).read_buf(all.reserve_block(STEP_BYTES)).await? {
            0 => break,
            read if !take(read as u64) => return Ok(None),
            _ => {}
        }
        if step % STEPS_PER_YIELD == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(Some(all.finish().await))
}

/// A reader that yields to other tasks after each portion of input.
struct PortionedReader<R> {
    encoded: R,
    portion_bytes: usize,
}

impl<R: AsyncBufRead + Unpin> AsyncBufRead for PortionedReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.portion_bytes >= INPUT_PORTION {
            this.portion_bytes = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let bytes = ready!(Pin::new(&mut this.encoded).poll_fill_buf(context))?;
        Poll::Ready(Ok(&bytes[..bytes.len().min(INPUT_PORTION - this.portion_bytes)]))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.portion_bytes += amount;
        Pin::new(&mut self.encoded).consume(amount);
    }
}

impl<R: AsyncBufRead + Unpin> AsyncRead for PortionedReader<R> {
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
