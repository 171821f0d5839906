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
    /// `{ } [ ] : ,`. Two control characters pass for some of them: who reads a token looks at its byte.
    pub(crate) operator: u64,
    pub(crate) space: u64,
}

/// What a block means, with what stood before it in mind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Where tokens begin: operators, opening quotes, the first byte of every other scalar.
    pub(crate) tokens: u64,
    /// The backslashes that begin an escape.
    pub(crate) escapes: u64,
    /// Control characters inside of strings.
    pub(crate) forbidden: u64,
}

/// What a block leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Carry {
    escaped: u64,
    /// All ones inside of a string.
    string: u64,
    scalar: u64,
}

impl Carry {
    #[inline(always)]
    pub(crate) fn next(&mut self, bytes: Bytes) -> Block {
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
        Block { tokens, escapes, forbidden: bytes.control & string }
    }

    /// Whether the text ended inside of a string.
    pub(crate) fn in_string(&self) -> bool {
        self.string != 0
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
pub(crate) use x86::avx2;

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
        Bytes {
            quote: equal(b'"'),
            backslash: equal(b'\\'),
            control: join(control(low), control(high)),
            operator: join(operator(low), operator(high)),
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
            let mut fast = unsafe { avx2(&block) };
            // The two control characters that pass for operators.
            fast.operator &= !fast.control;
            assert_eq!(fast, portable(&block), "{byte:#x}");
        }
    }
}
