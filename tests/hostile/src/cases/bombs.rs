//! Decompression bombs: bodies that are small as sent and large when decoded.

use std::io::Write;

/// The decoded size of a bomb, in bytes.
const DECODED_SIZE: usize = 64 << 20;

/// Returns zeros compressed with gzip.
pub(super) fn gzip_bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    write_zeros(&mut encoder);
    encoder.finish().unwrap_or_default()
}

/// Returns zeros compressed with zstd.
pub(super) fn zstd_bomb() -> Vec<u8> {
    let zeros = vec![0; DECODED_SIZE];
    zstd::bulk::compress(&zeros, 1).unwrap_or_default()
}

/// Returns a zstd frame whose header requests a window of 2 GiB (RFC 8878, section 3.1.1.1.2), with one raw
/// block.
pub(super) fn wide_window() -> Vec<u8> {
    let magic = 0xFD2F_B528_u32.to_le_bytes();
    let descriptor = [0x00, (31 - 10) << 3];
    let block = [0x09, 0x00, 0x00, b'x'];
    [&magic[..], &descriptor, &block].concat()
}

/// Returns zeros compressed with brotli.
pub(super) fn brotli_bomb() -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    write_zeros(&mut encoder);
    encoder.into_inner()
}

fn write_zeros(encoder: &mut impl Write) {
    let zeros = vec![0; 1 << 20];
    for _ in 0..DECODED_SIZE >> 20 {
        // Writing to a vector cannot fail.
        let _ = encoder.write_all(&zeros);
    }
}
