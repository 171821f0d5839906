//! `compress` and `uncompress` in the zlib format, in steps that each take a fraction of a millisecond.

use bytes::{Buf, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use crate::abi::HostStatus;

/// The maximum number of bytes that one step reads. It also limits empty blocks, which are expensive and
/// produce no output.
const STEP_INPUT: usize = 4 << 10;
/// The maximum number of bytes that one step writes.
const STEP_OUTPUT: usize = 32 << 10;

/// A conversion in progress.
pub(super) struct ZlibConversion {
    codec: ZlibCodec,
    /// The remaining input.
    input: Bytes,
    piece: Vec<u8>,
    output: Vec<u8>,
    /// The maximum length of the output.
    limit: usize,
}

enum ZlibCodec {
    Compress(Compress),
    Uncompress(Decompress),
}

impl ZlibConversion {
    /// Compresses a text. The output is barely longer than the text and has no limit of its own.
    pub(super) fn compress(text: Bytes) -> Self {
        Self::new(ZlibCodec::Compress(Compress::new(Compression::default(), true)), text, usize::MAX)
    }

    /// Decompresses a text to at most `limit` bytes.
    pub(super) fn uncompress(text: Bytes, limit: usize) -> Self {
        Self::new(ZlibCodec::Uncompress(Decompress::new(true)), text, limit)
    }

    fn new(codec: ZlibCodec, input: Bytes, limit: usize) -> Self {
        Self { codec, input, piece: vec![0; STEP_OUTPUT], output: Vec::new(), limit }
    }

    /// Runs the next step. Returns whether it was the last one.
    ///
    /// # Errors
    /// `SERIALIZATION_FAILURE` if the input is malformed or truncated, `INTERNAL_FAILURE` if the output
    /// exceeds its limit.
    pub(super) fn step(&mut self) -> Result<bool, HostStatus> {
        let chunk = self.input.get(..STEP_INPUT).unwrap_or(&self.input);
        let is_last = chunk.len() == self.input.len();
        let (read_before, written_before) = self.codec.totals();
        let is_end = self.codec.convert(chunk, is_last, &mut self.piece)?;
        let (read, written) = self.codec.totals();
        let (read, written) = ((read - read_before) as usize, (written - written_before) as usize);
        self.input.advance(read);
        self.output.extend_from_slice(self.piece.get(..written).unwrap_or_default());
        if self.output.len() > self.limit {
            return Err(HostStatus::InternalFailure);
        }
        if !is_end && read == 0 && written == 0 {
            return Err(HostStatus::SerializationFailure);
        }
        Ok(is_end)
    }

    /// The output, after the last step.
    pub(super) fn into_output(self) -> Bytes {
        self.output.into()
    }
}

impl ZlibCodec {
    /// The total number of bytes read and written.
    fn totals(&self) -> (u64, u64) {
        match self {
            Self::Compress(codec) => (codec.total_in(), codec.total_out()),
            Self::Uncompress(codec) => (codec.total_in(), codec.total_out()),
        }
    }

    /// Converts a part of the input. Returns whether the end of the output has been written.
    fn convert(&mut self, input: &[u8], is_last: bool, output: &mut [u8]) -> Result<bool, HostStatus> {
        let status = match self {
            Self::Compress(codec) => {
                let flush = if is_last { FlushCompress::Finish } else { FlushCompress::None };
                codec.compress(input, output, flush).map_err(|_| HostStatus::SerializationFailure)?
            }
            Self::Uncompress(codec) => codec
                .decompress(input, output, FlushDecompress::None)
                .map_err(|_| HostStatus::SerializationFailure)?,
        };
        Ok(status == flate2::Status::StreamEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert_fully(mut conversion: ZlibConversion) -> Result<Bytes, HostStatus> {
        while !conversion.step()? {}
        Ok(conversion.into_output())
    }

    fn compress_text(text: &[u8]) -> Bytes {
        convert_fully(ZlibConversion::compress(Bytes::copy_from_slice(text))).unwrap()
    }

    /// Pseudo-random bytes, which hardly compress.
    fn random_bytes(length: usize) -> Vec<u8> {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        };
        std::iter::repeat_with(&mut next).take(length).collect()
    }

    #[test]
    fn restores_texts_that_take_many_steps() {
        for text in [Vec::new(), b"abc".to_vec(), vec![0; 300_000], random_bytes(300_000)] {
            let packed = compress_text(&text);
            assert!(packed.len() <= text.len() + text.len() / 8 + 128, "{} of {}", packed.len(), text.len());
            assert_eq!(convert_fully(ZlibConversion::uncompress(packed, text.len())).unwrap(), text);
        }
    }

    #[test]
    fn refuses_output_beyond_its_limit_within_few_steps() {
        let mut conversion = ZlibConversion::uncompress(compress_text(&vec![0; 4 << 20]), 100_000);
        let mut steps = 0;
        let end = loop {
            steps += 1;
            match conversion.step() {
                Ok(false) => {}
                end => break end,
            }
        };
        assert_eq!((end, steps < 10), (Err(HostStatus::InternalFailure), true), "{steps}");
    }

    #[test]
    fn refuses_malformed_and_truncated_texts() {
        let packed = compress_text(&random_bytes(10_000));
        for text in [Bytes::new(), Bytes::from_static(b"nonsense"), packed.slice(..packed.len() - 5)] {
            assert_eq!(
                convert_fully(ZlibConversion::uncompress(text, 1 << 20)),
                Err(HostStatus::SerializationFailure)
            );
        }
    }

    #[test]
    fn reads_few_empty_blocks_per_step() {
        // Empty stored blocks, all of them marked as not final.
        let text: Vec<u8> = [0x78, 0x9c].into_iter().chain([0, 0, 0, 0xff, 0xff].repeat(100_000)).collect();
        let length = text.len();
        let mut conversion = ZlibConversion::uncompress(text.into(), 1 << 20);
        let mut steps = 0;
        while let Ok(false) = conversion.step() {
            steps += 1;
        }
        assert!(steps >= length / STEP_INPUT, "{steps}");
    }
}
