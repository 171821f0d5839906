//! Content decoding: bombs, windows, members, and trailing data.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
use async_compression::zstd::CParameter;
use offload::OffloadConfig;
use testkit::with_timeout;
use tokio::io::{AsyncWriteExt, BufReader};

use super::*;
use crate::coop::TURN_BYTES;

const LIMIT: u64 = 1 << 20;
const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

async fn encode_text(coding: &str, text: &[u8]) -> Vec<u8> {
    macro_rules! with {
        ($encoder:expr) => {{
            let mut encoder = $encoder;
            encoder.write_all(text).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match coding {
        "gzip" => with!(GzipEncoder::new(Vec::new())),
        "deflate" => with!(ZlibEncoder::new(Vec::new())),
        "br" => with!(BrotliEncoder::new(Vec::new())),
        _ => with!(ZstdEncoder::new(Vec::new())),
    }
}

async fn decode_text(coding: &str, body: Vec<u8>) -> Result<Bytes, DecompressError> {
    let headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().unwrap())]);
    decompress(&headers, body.into(), LIMIT, None).await
}

#[tokio::test]
async fn decodes_a_single_coding() {
    let text = b"a program ".repeat(10_000);
    for coding in CODINGS {
        assert_eq!(decode_text(coding, encode_text(coding, &text).await).await.unwrap(), text, "{coding}");
    }
    assert_eq!(decode_text("identity", text.clone()).await.unwrap(), text);
    assert_eq!(decompress(&HeaderMap::new(), text.clone().into(), 1, None).await.unwrap(), text);
}

#[tokio::test]
async fn refuses_bombs_at_the_limit() {
    for coding in CODINGS {
        let just = encode_text(coding, &vec![0; LIMIT as usize]).await;
        assert_eq!(decode_text(coding, just).await.unwrap().len(), LIMIT as usize, "{coding}");
        let bomb = encode_text(coding, &vec![0; LIMIT as usize + 1]).await;
        assert_eq!(decode_text(coding, bomb).await, Err(DecompressError::TooLarge(LIMIT)), "{coding}");
    }
}

#[tokio::test]
async fn counts_all_members_and_frames() {
    for coding in ["gzip", "zstd"] {
        let both = [encode_text(coding, b"one").await, encode_text(coding, b"two").await].concat();
        assert_eq!(decode_text(coding, both).await.unwrap(), &b"onetwo"[..], "{coding}");
        let half = vec![0; LIMIT as usize / 2 + 1];
        let bomb = encode_text(coding, &half).await.repeat(2);
        assert_eq!(decode_text(coding, bomb).await, Err(DecompressError::TooLarge(LIMIT)), "{coding}");
    }
}

#[tokio::test]
async fn refuses_trailing_data_and_truncated_texts() {
    for coding in CODINGS {
        let whole = encode_text(coding, b"a program").await;
        let more = [&whole[..], b"more"].concat();
        assert_eq!(decode_text(coding, more).await, Err(DecompressError::Malformed), "{coding}");
        let less = whole[..whole.len() - 1].to_vec();
        assert_eq!(decode_text(coding, less).await, Err(DecompressError::Malformed), "{coding}");
    }
}

#[tokio::test]
async fn refuses_a_window_larger_than_rfc_9659_allows() {
    // Text of unknown length: the frame requests its window size.
    for (log, fits) in [(23, true), (24, false), (27, false)] {
        let mut encoder = ZstdEncoder::with_quality_and_params(
            Vec::new(),
            async_compression::Level::Fastest,
            &[CParameter::window_log(log)],
        );
        encoder.write_all(b"a program").await.unwrap();
        encoder.flush().await.unwrap();
        encoder.write_all(b" and more of it").await.unwrap();
        encoder.shutdown().await.unwrap();
        assert_eq!(decode_text("zstd", encoder.into_inner()).await.is_ok(), fits, "{log}");
    }
}

#[tokio::test]
async fn refuses_multiple_codings() {
    for coding in ["gzip, gzip", "gzip,br", "identity, gzip", "aes128gcm", ""] {
        let body = encode_text("gzip", b"x").await;
        assert!(
            matches!(decode_text(coding, body).await, Err(DecompressError::UnknownCoding(_))),
            "{coding:?}"
        );
    }
    let mut headers = HeaderMap::new();
    headers.append(CONTENT_ENCODING, "gzip".parse().unwrap());
    headers.append(CONTENT_ENCODING, "gzip".parse().unwrap());
    let twice = encode_text("gzip", &encode_text("gzip", b"x").await).await;
    let refused = decompress(&headers, twice.into(), LIMIT, None).await.unwrap_err();
    assert_eq!(refused, DecompressError::UnknownCoding("gzip, gzip".to_owned()));
}

/// Returns how often a task that decodes this body yields.
fn count_yields(coding: ContentCoding, body: &[u8]) -> usize {
    let mut reading = Box::pin(read_decoded(coding.decoder(body), |_| true));
    let mut context = Context::from_waker(Waker::noop());
    (0..).find(|_| reading.as_mut().poll(&mut context).is_ready()).unwrap()
}

#[tokio::test]
async fn yields_within_a_bomb_and_between_empty_members() {
    const LENGTH: usize = 4 << 20;
    let bomb = encode_text("gzip", &vec![0; LENGTH]).await;
    // Joining the blocks of the decoded text takes some turns more.
    let least = LENGTH / (STEP_BYTES * STEPS_PER_YIELD) + LENGTH / (4 * TURN_BYTES);
    assert!(count_yields(ContentCoding::Gzip, &bomb) >= least);
    for (name, coding) in [("gzip", ContentCoding::Gzip), ("zstd", ContentCoding::Zstd)] {
        let empty = encode_text(name, b"").await.repeat(10_000);
        assert!(count_yields(coding, &empty) >= empty.len() / INPUT_PORTION - 1, "{name}");
    }
}

#[tokio::test]
async fn decodes_long_bodies_in_the_pool_and_charges_the_sender() {
    let hour = Duration::from_secs(3600);
    let start = || OffloadPool::start(OffloadConfig { threads: 1, quota: hour }).unwrap();
    let (pool, poor, payer) = (start(), start(), QuotaKey::new(&1));
    poor.quota().charge(payer, 100 * hour, Instant::now());
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(2 * MAX_INLINE_BYTES)
    .collect();
    for (coding, text, jobs) in
        [("gzip", &b"short"[..], 0), ("gzip", &*noise, 1), ("zstd", &*noise, 2), ("br", b"any", 3)]
    {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().unwrap())]);
        let body = Bytes::from(encode_text(coding, text).await);
        let decoded_by = |pool| {
            let decoder_pool = DecoderPool { pool, payer, deadline: Instant::now() + hour };
            decompress(&headers, body.clone(), LIMIT, Some(decoder_pool))
        };
        let before = pool.stats().kinds.get("decompress").map_or(0, |kind| kind.jobs);
        assert_eq!(decoded_by(&pool).await.unwrap(), text, "{coding}");
        let after = pool.stats().kinds.get("decompress").map_or(0, |kind| kind.jobs);
        assert_eq!(after, jobs, "{coding}");
        let is_refused = matches!(
            decoded_by(&poor).await,
            Err(DecompressError::Refused(OffloadError::QuotaExceeded { .. }))
        );
        assert_eq!(is_refused, after > before, "{coding}");
    }
}

/// An endless text of empty gzip members.
struct EndlessGzip {
    member: Vec<u8>,
    at: usize,
    /// The number of reads.
    reads: Arc<AtomicUsize>,
}

impl AsyncRead for EndlessGzip {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.reads.fetch_add(1, SeqCst);
        let bytes = &this.member[this.at..];
        let length = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..length]);
        this.at = (this.at + length) % this.member.len();
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_job_stops_within_an_endless_text_when_its_caller_is_gone() {
    let pool = OffloadPool::start(OffloadConfig { threads: 1, ..OffloadConfig::default() }).unwrap();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let decoders = DecoderPool { pool: &pool, payer: QuotaKey::new(&1), deadline };
    let reads = Arc::<AtomicUsize>::default();
    let endless = EndlessGzip { member: encode_text("gzip", b"").await, at: 0, reads: Arc::clone(&reads) };
    let decoding = decoders.run(20, async {
        let decoder = ContentCoding::Gzip.decoder(BufReader::new(endless));
        read_decoded(decoder, |_| true).await
    });
    tokio::select! {
        _ = decoding => panic!("the text is endless"),
        () = async { while reads.load(SeqCst) < 100 { tokio::task::yield_now().await } } => {}
    }
    // The pool has one thread.
    let after = with_timeout("the next job", decoders.run(1, async { 1 })).await;
    assert_eq!(after, Ok(1));
}

#[tokio::test]
async fn does_not_decode_after_the_deadline() {
    let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
    let headers = HeaderMap::from_iter([(CONTENT_ENCODING, "br".parse().unwrap())]);
    let body = encode_text("br", b"any").await.into();
    let past = DecoderPool { pool: &pool, payer: QuotaKey::new(&1), deadline: Instant::now() };
    let error = decompress(&headers, body, LIMIT, Some(past)).await.unwrap_err();
    assert_eq!(error, DecompressError::Refused(OffloadError::DeadlineExceeded));
}
