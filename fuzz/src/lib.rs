//! How parsers are fuzzed: every parser of ours that takes bytes from outside has a target, in `src/fuzz.rs`
//! of its crate, where it can reach what is private.
//!
//! Targets are ordinary tests of a thousand inputs each. `make fuzz SECONDS=600` gives each that much time and
//! any number of inputs.
//! A failure prints its input, made as small as possible. The inputs come from proptest, which the crates' other
//! tests have anyway: a library for fuzzing alone cost a crate of level 0 a fifth of its first build.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};

/// How many inputs each target gets where nothing else is said.
pub const INPUTS: u32 = 1000;
/// The longest input, in bytes before words are put in.
pub const LENGTH: usize = 256;
/// The variable that gives each target so many seconds.
const SECONDS: &str = "FUZZ_SECONDS";

/// Fuzzes a function of bytes: with bytes as they come, and with these words among them, since no grammar is
/// hit by chance.
///
/// # Panics
/// If the function does, with the smallest input found that makes it.
pub fn check(words: &[&str], target: impl Fn(&[u8])) {
    let seconds = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
    let (begun, time) = (Instant::now(), Duration::from_secs(seconds));
    loop {
        let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&vec(any::<u8>(), 0..=LENGTH), |bytes| {
            target(&bytes);
            target(&spelled(&bytes, words));
            Ok(())
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
        if begun.elapsed() >= time {
            return;
        }
    }
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
