//! Classification of 64 bytes of JSON text at once, with a bit for each byte. This is the first of the two
//! indexing stages.
//!
//! The method is that of simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019).

/// The length of a block.
pub(crate) const BLOCK_LENGTH: usize = 64;

/// The classes of a block's bytes, without context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteClasses {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    /// Below 0x20, which strings may not contain.
    pub(crate) control: u64,
    /// `{ } [ ] : ,`
    pub(crate) operator: u64,
    pub(crate) space: u64,
}

/// The classification of a text, block by block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockClassification {
    /// The beginnings of tokens: operators, opening quotes, and the first bytes of all other scalars.
    pub(crate) tokens: Vec<u64>,
    /// Whether there is whitespace outside of strings.
    pub(crate) has_whitespace: bool,
}

/// The size in bytes of [`BlockClassification::tokens`] for a text of this length.
pub(crate) fn token_bits_size(text: usize) -> usize {
    (text / BLOCK_LENGTH + 1) * size_of::<u64>()
}

/// Classifies a text, and checks its strings. The error is the position of an invalid byte in a string.
pub(crate) fn classify_text(text: &[u8]) -> Result<BlockClassification, usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
        #[expect(unsafe_code, reason = "CPU features are detected at run time")]
        // SAFETY: this machine has AVX2 and BMI1.
        return unsafe { classify_text_avx2(text) };
    }
    classify_text_with(text, classify_portable)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn classify_text_avx2(text: &[u8]) -> Result<BlockClassification, usize> {
    classify_text_with(text, |block| classify_avx2(block))
}

/// Inlined, so that it is compiled separately for each instruction set.
#[inline(always)]
pub(crate) fn classify_text_with(
    text: &[u8],
    classify: impl Fn(&[u8; BLOCK_LENGTH]) -> ByteClasses,
) -> Result<BlockClassification, usize> {
    let (blocks, rest) = text.as_chunks::<BLOCK_LENGTH>();
    let mut last = [b' '; BLOCK_LENGTH];
    last[..rest.len()].copy_from_slice(rest);
    let mut carry = BlockCarry::default();
    let mut tokens = Vec::with_capacity(blocks.len() + 1);
    let mut spaces = 0;
    for (number, block) in blocks.iter().chain([&last]).enumerate() {
        let block = carry.next_block(classify(block));
        if block.forbidden | block.escapes != 0 {
            check_strings(text, number * BLOCK_LENGTH, block)?;
        }
        tokens.push(block.tokens);
        // The last block is padded with spaces.
        let within = if number < blocks.len() { u64::MAX } else { !(u64::MAX << rest.len()) };
        spaces |= block.space & within;
    }
    if carry.string == 0 {
        Ok(BlockClassification { tokens, has_whitespace: spaces != 0 })
    } else {
        Err(text.len())
    }
}

/// Checks the strings in a block.
#[cold]
fn check_strings(text: &[u8], base: usize, block: ClassifiedBlock) -> Result<(), usize> {
    let mut marks = block.forbidden | block.escapes;
    while marks != 0 {
        let bit = marks.trailing_zeros();
        let at = base + bit as usize;
        if block.forbidden >> bit & 1 == 1 || !is_escape(text.get(at + 1..).unwrap_or_default()) {
            return Err(at);
        }
        marks &= marks - 1;
    }
    Ok(())
}

/// Whether a text begins with a valid continuation of an escape after its backslash.
fn is_escape(text: &[u8]) -> bool {
    match text {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => true,
        [b'u', digits @ ..] => digits.len() >= 4 && digits[..4].iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}

/// The classification of a block, with the context from previous blocks.
#[derive(Clone, Copy, Debug)]
struct ClassifiedBlock {
    tokens: u64,
    /// The backslashes that begin an escape.
    escapes: u64,
    /// Control characters inside of strings.
    forbidden: u64,
    /// Whitespace outside of strings.
    space: u64,
}

/// The state that is carried from one block to the next.
#[derive(Debug, Default)]
struct BlockCarry {
    escaped: u64,
    /// All ones inside of a string.
    string: u64,
    scalar: u64,
}

impl BlockCarry {
    #[inline(always)]
    fn next_block(&mut self, bytes: ByteClasses) -> ClassifiedBlock {
        let (escaped, escapes) = self.find_escapes(bytes.backslash);
        let quote = bytes.quote & !escaped;
        let string = prefix_xor(quote) ^ self.string;
        self.string = 0_u64.wrapping_sub(string >> 63);
        let scalar = !(bytes.operator | bytes.space);
        let word = scalar & !quote;
        let follows = (word << 1) | self.scalar;
        self.scalar = word >> 63;
        // From the byte after an opening quote through the closing quote.
        let tail = string ^ quote;
        let tokens = (bytes.operator | (scalar & !follows)) & !tail;
        ClassifiedBlock { tokens, escapes, forbidden: bytes.control & string, space: bytes.space & !string }
    }

    /// The escaped bytes, and the backslashes that escape them: every second one of a run. The carry of the
    /// addition propagates along a run of backslashes, so that its end shows whether the run's length is
    /// even.
    #[inline(always)]
    fn find_escapes(&mut self, backslash: u64) -> (u64, u64) {
        const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        if backslash == 0 {
            return (std::mem::take(&mut self.escaped), 0);
        }
        let begins = backslash & !self.escaped;
        let ends = ((begins << 1) | ODD).wrapping_sub(begins) ^ ODD;
        let escaped = ends ^ (backslash | self.escaped);
        let escapes = ends & backslash;
        self.escaped = escapes >> 63;
        (escaped, escapes)
    }
}

/// The prefix parity of the bits: ones from each opening quote up to, but not including, the closing quote.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// The portable implementation.
#[inline(always)]
pub(crate) fn classify_portable(block: &[u8; BLOCK_LENGTH]) -> ByteClasses {
    let mut bytes = ByteClasses::default();
    for (at, &byte) in block.iter().enumerate() {
        bytes.quote |= u64::from(byte == b'"') << at;
        bytes.backslash |= u64::from(byte == b'\\') << at;
        bytes.control |= u64::from(byte < 0x20) << at;
        let operator = matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',');
        bytes.operator |= u64::from(operator) << at;
        bytes.space |= u64::from(matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) << at;
    }
    bytes
}

#[cfg(target_arch = "x86_64")]
use x86::classify_avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BLOCK_LENGTH, ByteClasses};

    /// The AVX2 implementation. Whitespace and operators are looked up by the low four bits of each byte: a
    /// byte belongs to the class if it equals the table's entry.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn classify_avx2(block: &[u8; BLOCK_LENGTH]) -> ByteClasses {
        let (low, high) = block.split_at(32);
        let [low, high] = [low, high].map(|half| {
            #[expect(unsafe_code, reason = "vectors are loaded through pointers")]
            // SAFETY: both halves have 32 bytes, and the load needs no alignment.
            unsafe {
                _mm256_loadu_si256(half.as_ptr().cast())
            }
        });
        let join = |low, high| {
            let [low, high] = [low, high].map(|half| u64::from(_mm256_movemask_epi8(half).cast_unsigned()));
            low | high << 32
        };
        let equal = |byte: u8| {
            let byte = _mm256_set1_epi8(byte.cast_signed());
            join(_mm256_cmpeq_epi8(low, byte), _mm256_cmpeq_epi8(high, byte))
        };
        let last_control = _mm256_set1_epi8(0x1f);
        let control = |half| _mm256_cmpeq_epi8(_mm256_max_epu8(half, last_control), last_control);
        #[rustfmt::skip]
        let spaces = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            32, 100, 100, 100, 17, 100, 113, 2, 100, 9, 10, 112, 100, 13, 100, 100,
        ));
        let space = |half| _mm256_cmpeq_epi8(half, _mm256_shuffle_epi8(spaces, half));
        // `{`, `:`, `,` and `}`. Setting the bit 0x20 turns square brackets into braces.
        #[rustfmt::skip]
        let operators = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 58, 123, 44, 125, 0, 0,
        ));
        let operator = |half| {
            let curly = _mm256_or_si256(half, _mm256_set1_epi8(0x20));
            _mm256_cmpeq_epi8(curly, _mm256_shuffle_epi8(operators, half))
        };
        let control = join(control(low), control(high));
        ByteClasses {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            control,
            // With that bit set, two control characters look like `:` and `,`.
            operator: join(operator(low), operator(high)) & !control,
            space: join(space(low), space(high)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_escape_across_blocks() {
        let mut carry = BlockCarry::default();
        assert_eq!(carry.find_escapes(0b0111), (0b1010, 0b0101));
        assert_eq!(carry.find_escapes(1 << 63), (0, 1 << 63));
        assert_eq!(carry.find_escapes(0b11), (0b101, 0b10));
        assert_eq!(carry.find_escapes(0), (0, 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_and_portable_classification_agree() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for byte in 0..=u8::MAX {
            let mut block = [b'a'; BLOCK_LENGTH];
            block[usize::from(byte) % BLOCK_LENGTH] = byte;
            #[expect(unsafe_code, reason = "CPU features are detected at run time")]
            // SAFETY: this machine has AVX2.
            let fast = unsafe { classify_avx2(&block) };
            assert_eq!(fast, classify_portable(&block), "{byte:#x}");
        }
    }
}
