//! How parsers are fuzzed: every parser of ours that takes bytes from outside has a target, in `src/fuzz.rs`
//! of its crate, where it can reach what is private.
//!
//! Targets are ordinary tests of a thousand inputs each. `make fuzz SECONDS=600` gives each that much time and
//! any number of inputs.
//! A failure prints its input, made as small as possible, and the seed that finds it again
//! (`BOLERO_RANDOM_SEED`).

pub use bolero;

/// How many inputs each target gets where nothing else is said.
pub const INPUTS: usize = 1000;
/// The longest input, in bytes before words are put in.
pub const LENGTH: usize = 256;

/// Fuzzes a function of bytes: with bytes as they come, and with these words among them, since no grammar is
/// hit by chance.
#[macro_export]
macro_rules! check {
    ($words:expr, $target:expr) => {{
        let words: &[&str] = $words;
        // A panic ends the test: what it leaves behind is looked at by nobody.
        let target = std::panic::AssertUnwindSafe($target);
        let check = $crate::bolero::check!().with_iterations($crate::INPUTS).with_max_len($crate::LENGTH);
        check.for_each(move |bytes: &[u8]| {
            let target = &target;
            target(bytes);
            target(&$crate::spelled(bytes, words));
        });
    }};
}

/// Bytes as a text: a high one is a word, the others are themselves.
#[must_use]
pub fn spelled(bytes: &[u8], words: &[&str]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4);
    for &byte in bytes {
        match words.get(usize::from(byte & 0x7f) % words.len().max(1)) {
            Some(word) if byte >= 0x40 => text.extend_from_slice(word.as_bytes()),
            _ => text.push(byte & 0x7f),
        }
    }
    text
}

/// A good input that went bad: of each three bytes, two say where and the third what stands there then.
#[must_use]
pub fn damaged(good: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut bad = good.to_vec();
    for damage in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([damage[0], damage[1]])) % (bad.len() + 1);
        match bad.get_mut(place) {
            Some(byte) if damage[2] != 0 => *byte ^= damage[2],
            _ => bad.truncate(place),
        }
    }
    bad
}
