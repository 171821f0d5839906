//! The content codings and their encoders.
//!
//! The levels are a compromise of CPU time and size. For 100 KB of JSON, zstd at 1 yields 16 KB in 0.12 ms,
//! brotli at 2 yields 17 KB in 0.5 ms, and gzip at 4 yields 18 KB in 1.4 ms. Brotli at 5, common for static
//! files, takes 3 ms for 15.5 KB. The order of preference follows.

use std::cell::RefCell;
use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use crate::config::ContentCodingKind;

const ZSTD_LEVEL: i32 = 1;
const BROTLI_LEVEL: i32 = 2;
const GZIP_LEVEL: Compression = Compression::new(4);

/// The log2 of the window for texts of unknown length. It is small because thousands of slow responses may
/// each have a window.
const STREAM_WINDOW: u32 = 16;
/// The log2 of the largest window for texts of known length.
const MAX_WINDOW: u32 = 18;
/// The log2 of brotli's largest window. Its hash table has 2^16 positions, so a wider window contains hardly
/// any more matches. Its output buffer, which is zeroed each time it grows, may reach four times the window.
const BROTLI_WINDOW: u32 = 17;

/// The size of brotli's output buffer.
const BROTLI_STEP: usize = 4 << 10;

impl ContentCodingKind {
    /// The name in `Content-Encoding`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The bytes that are encoded before other tasks run. Of texts that are hard to compress, a byte takes up
    /// to 8 ns with zstd, 20 ns with brotli and 45 to 100 ns with gzip: half a millisecond, a third with
    /// brotli, and up to 0.8 ms with gzip. Brotli encodes in blocks of 16 KiB, and its first block allocates
    /// 0.8 MiB, which takes up to 0.4 ms more.
    pub(super) fn yield_interval(self) -> usize {
        match self {
            Self::Zstd => 64 << 10,
            Self::Brotli => 16 << 10,
            Self::Gzip => 8 << 10,
        }
    }

    /// Encodes a complete text; `None` if it would not become shorter.
    pub(super) fn encode_whole(self, text: &[u8]) -> Option<Vec<u8>> {
        let encoded = match self {
            Self::Zstd => encode_zstd(text),
            Self::Brotli => encode_brotli(text),
            Self::Gzip => encode_gzip(text),
        };
        encoded.ok().filter(|encoded| encoded.len() < text.len())
    }
}

fn encode_zstd(text: &[u8]) -> io::Result<Vec<u8>> {
    thread_local! {
        static CONTEXT: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| match context {
        Some(context) => context.compress(text),
        None => context.insert(Compressor::new(ZSTD_LEVEL)?).compress(text),
    })
}

fn encode_brotli(text: &[u8]) -> io::Result<Vec<u8>> {
    let parameters = brotli_parameters(window_log(text.len() as u64));
    let out = Vec::with_capacity(text.len() / 2);
    let mut encoder = CompressorWriter::with_params(out, BROTLI_STEP, &parameters);
    encoder.write_all(text)?;
    Ok(encoder.into_inner())
}

/// Returns the log2 of the smallest window that holds a text of this length, up to [`MAX_WINDOW`].
fn window_log(length: u64) -> u32 {
    (u64::BITS - length.leading_zeros()).clamp(10, MAX_WINDOW)
}

fn brotli_parameters(window: u32) -> BrotliEncoderParams {
    let lgwin = window.min(BROTLI_WINDOW).cast_signed();
    BrotliEncoderParams { quality: BROTLI_LEVEL, lgwin, ..BrotliEncoderParams::default() }
}

/// Encodes with a reused context, in a gzip member (RFC 1952).
fn encode_gzip(text: &[u8]) -> io::Result<Vec<u8>> {
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    thread_local! {
        static CONTEXT: RefCell<Compress> = RefCell::new(Compress::new(GZIP_LEVEL, false));
    }
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    out.extend_from_slice(&HEAD);
    CONTEXT.with_borrow_mut(|context| {
        context.reset();
        loop {
            let read = usize::try_from(context.total_in()).unwrap_or(usize::MAX).min(text.len());
            if context.compress_vec(&text[read..], &mut out, FlushCompress::Finish)? == Status::StreamEnd {
                return io::Result::Ok(());
            }
            out.reserve(text.len() / 4 + 64);
        }
    })?;
    let mut checksum = Crc::new();
    checksum.update(text);
    out.extend_from_slice(&checksum.sum().to_le_bytes());
    out.extend_from_slice(&checksum.amount().to_le_bytes());
    Ok(out)
}

/// A streaming encoder.
pub(super) enum ContentEncoder {
    Zstd(zstd::Encoder<'static, Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl ContentEncoder {
    /// Creates an encoder for a text of this length, if known.
    pub(super) fn new(coding: ContentCodingKind, size: Option<u64>) -> io::Result<Self> {
        let window = size.map_or(STREAM_WINDOW, window_log);
        Ok(match coding {
            ContentCodingKind::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(window))?;
                Self::Zstd(encoder)
            }
            ContentCodingKind::Brotli => {
                let parameters = brotli_parameters(window);
                Self::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), BROTLI_STEP, &parameters)))
            }
            ContentCodingKind::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), GZIP_LEVEL)),
        })
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(piece),
            Self::Brotli(encoder) => encoder.write_all(piece),
            Self::Gzip(encoder) => encoder.write_all(piece),
        }
    }

    /// Flushes all input to the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// The output since the last call.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// Ends the encoding and returns the remaining output.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}
