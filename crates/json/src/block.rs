//! What stands where in 64 bytes of JSON text, a bit for each byte: the first of the two steps of the index.
//!
//! The way of simdjson (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019).

/// The length of a block.
pub(crate) const BLOCK: usize = 64;

/// What the bytes of a block are, taken by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) quote: u64,
    pub(crate) backslash: u64,
    /// Below 0x20, which no string may hold.
    pub(crate) control: u64,
    /// `{ } [ ] : ,`
    pub(crate) operator: u64,
    pub(crate) space: u64,
}

/// What stands where in a text, block by block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where tokens begin: operators, opening quotes, the first bytes of all other scalars.
    pub(crate) tokens: Vec<u64>,
    /// Whether there is white space outside of strings.
    pub(crate) is_spaced: bool,
}

/// The bytes of [`Found::tokens`] for a text of this length.
pub(crate) fn tokens_bytes(text: usize) -> usize {
    (text / BLOCK + 1) * size_of::<u64>()
}

/// What stands where in a text. Strings are checked on the way; the error is the place of what none may hold.
pub(crate) fn tokens(text: &[u8]) -> Result<Found, usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
        #[expect(unsafe_code, reason = "what a machine has is known at run time")]
        // SAFETY: this machine has AVX2 and BMI1.
        return unsafe { tokens_avx2(text) };
    }
    tokens_by(text, portable)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn tokens_avx2(text: &[u8]) -> Result<Found, usize> {
    tokens_by(text, |block| avx2(block))
}

/// Inlined, so that it is compiled once for each kind of machine.
#[inline(always)]
pub(crate) fn tokens_by(text: &[u8], classify: impl Fn(&[u8; BLOCK]) -> Bytes) -> Result<Found, usize> {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let mut carry = Carry::default();
    let mut tokens = Vec::with_capacity(blocks.len() + 1);
    let mut spaces = 0;
    for (number, block) in blocks.iter().chain([&last]).enumerate() {
        let block = carry.next(classify(block));
        if block.forbidden | block.escapes != 0 {
            check(text, number * BLOCK, block)?;
        }
        tokens.push(block.tokens);
        // The last block is filled up with spaces.
        let within = if number < blocks.len() { u64::MAX } else { !(u64::MAX << rest.len()) };
        spaces |= block.space & within;
    }
    if carry.string == 0 { Ok(Found { tokens, is_spaced: spaces != 0 }) } else { Err(text.len()) }
}

/// Checks what a block has in its strings.
#[cold]
fn check(text: &[u8], base: usize, block: Block) -> Result<(), usize> {
    let mut marks = block.forbidden | block.escapes;
    while marks != 0 {
        let bit = marks.trailing_zeros();
        let at = base + bit as usize;
        if block.forbidden >> bit & 1 == 1 || !escape(text.get(at + 1..).unwrap_or_default()) {
            return Err(at);
        }
        marks &= marks - 1;
    }
    Ok(())
}

/// Whether a text begins with what may stand behind a backslash.
fn escape(text: &[u8]) -> bool {
    match text {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => true,
        [b'u', digits @ ..] => digits.len() >= 4 && digits[..4].iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}

/// What a block means, with what stood before it in mind.
#[derive(Clone, Copy, Debug)]
struct Block {
    tokens: u64,
    /// The backslashes that begin an escape.
    escapes: u64,
    /// Control characters inside of strings.
    forbidden: u64,
    /// White space outside of strings.
    space: u64,
}

/// What a block leaves to the next one.
#[derive(Debug, Default)]
struct Carry {
    escaped: u64,
    /// All ones inside of a string.
    string: u64,
    scalar: u64,
}

impl Carry {
    #[inline(always)]
    fn next(&mut self, bytes: Bytes) -> Block {
        let (escaped, escapes) = self.escapes(bytes.backslash);
        let quote = bytes.quote & !escaped;
        let string = fill(quote) ^ self.string;
        self.string = 0_u64.wrapping_sub(string >> 63);
        let scalar = !(bytes.operator | bytes.space);
        let word = scalar & !quote;
        let follows = (word << 1) | self.scalar;
        self.scalar = word >> 63;
        // From behind an opening quote to the closing one.
        let tail = string ^ quote;
        let tokens = (bytes.operator | (scalar & !follows)) & !tail;
        Block { tokens, escapes, forbidden: bytes.control & string, space: bytes.space & !string }
    }

    /// The escaped bytes, and the backslashes that escape them: every second one of a row. The sum carries
    /// along a row of backslashes, so that its end tells whether the row is even.
    #[inline(always)]
    fn escapes(&mut self, backslash: u64) -> (u64, u64) {
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

/// Each bit the parity of itself and those below it: ones from each opening quote to before the closing one.
#[inline(always)]
fn fill(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// For any machine.
#[inline(always)]
pub(crate) fn portable(block: &[u8; BLOCK]) -> Bytes {
    let mut bytes = Bytes::default();
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
use x86::avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BLOCK, Bytes};

    /// For machines with AVX2. White space and operators are looked up by their low four bits: a byte is
    /// one if it equals the only one that has them.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn avx2(block: &[u8; BLOCK]) -> Bytes {
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
        // `{`, `:`, `,` and `}`; the bit 0x20 makes brackets of the square ones.
        #[rustfmt::skip]
        let operators = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 58, 123, 44, 125, 0, 0,
        ));
        let operator = |half| {
            let curly = _mm256_or_si256(half, _mm256_set1_epi8(0x20));
            _mm256_cmpeq_epi8(curly, _mm256_shuffle_epi8(operators, half))
        };
        let control = join(control(low), control(high));
        Bytes {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            control,
            // Two control characters pass for `:` and `,` with that bit.
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
        let mut carry = Carry::default();
        assert_eq!(carry.escapes(0b0111), (0b1010, 0b0101));
        assert_eq!(carry.escapes(1 << 63), (0, 1 << 63));
        assert_eq!(carry.escapes(0b11), (0b101, 0b10));
        assert_eq!(carry.escapes(0), (0, 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_ways_see_the_same_bytes() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for byte in 0..=u8::MAX {
            let mut block = [b'a'; BLOCK];
            block[usize::from(byte) % BLOCK] = byte;
            #[expect(unsafe_code, reason = "what a machine has is known at run time")]
            // SAFETY: this machine has AVX2.
            let fast = unsafe { avx2(&block) };
            assert_eq!(fast, portable(&block), "{byte:#x}");
        }
    }
}
