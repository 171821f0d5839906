//! Fuzzing: the targets, the generators of what they are given, and the two ways in which they are run.
//!
//! A target is a test in its crate, where it can reach what is private: it calls [`run`] with its name in [`TARGETS`] and
//! an oracle, a function of bytes that panics if something is wrong. `cargo test` gives the oracle the seeds in
//! `fuzz/corpus/NAME` and random inputs; `make fuzz` builds the same tests with the address sanitizer and has libFuzzer
//! choose the inputs (`driver.rs`), with ceilings for time and memory. Parsers of what operators write have tests without
//! a name ([`check`]), which run in `cargo test` alone.
//!
//! Structured inputs are written by the modules in [`generate`], from the same bytes: a mutation of a byte is another
//! choice of the generator, and a failure shrinks to few choices. The generators know the formats, and no crate of ours.

mod choices;
#[cfg(feature = "libfuzzer")]
mod driver;
pub mod generate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};

pub use choices::Choices;
pub use targets::{QUARANTINE_MB, RSS_MB, TARGETS, Target};

/// How many random inputs a test gets at most.
pub const INPUTS: u32 = 1000;
/// After how long a test gets no further ones.
const TEST_TIME: Duration = Duration::from_secs(2);
/// The longest random input of a test, in bytes: of texts, before words are put in, and of choices.
const TEXT_LENGTH: usize = 256;
const CHOICES_LENGTH: usize = 1024;

/// Runs a target of [`TARGETS`]: with bytes as they come, and, where there are words, with these among them.
///
/// # Panics
/// If the oracle does, or no target has the name.
pub fn run(name: &str, words: &[&str], oracle: impl Fn(&[u8])) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("no target is called `{name}`"));
    #[cfg(feature = "libfuzzer")]
    if driver::is_wanted() {
        return driver::drive(target, words, &oracle);
    }
    for (path, seed) in seeds(target) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| oracle(&seed))) {
            let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
            panic!("the seed {}: {text}", path.display());
        }
    }
    random(words, if words.is_empty() { CHOICES_LENGTH } else { TEXT_LENGTH }, oracle);
}

/// Checks a function of random bytes, and of texts with these words among them: no grammar is hit by chance.
///
/// # Panics
/// If the function does, with the smallest input found that makes it.
pub fn check(words: &[&str], oracle: impl Fn(&[u8])) {
    random(words, TEXT_LENGTH, oracle);
}

/// Checks a function of random bytes of up to this length.
fn random(words: &[&str], length: usize, oracle: impl Fn(&[u8])) {
    let begun = Instant::now();
    let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&vec(any::<u8>(), 0..=length), |bytes| {
        if begun.elapsed() < TEST_TIME {
            oracle(&bytes);
            if !words.is_empty() {
                oracle(&spelled(&bytes, words));
            }
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// The committed inputs of a target, by name.
fn seeds(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let read = |path: PathBuf| std::fs::read(&path).ok().map(|bytes| (path, bytes));
    paths.into_iter().filter_map(read).collect()
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
