//! Fuzzing: the targets, the generators of their inputs, and the two ways to run them.
//!
//! A target is a test in its crate, with access to private items: it calls [`run`] with its name in
//! [`TARGETS`] and an oracle, a function of bytes that panics on a finding. `cargo test` passes the seeds in
//! `fuzz/corpus/NAME` and random inputs to the oracle. `make fuzz` builds the same tests with the address
//! sanitizer and lets libFuzzer choose the inputs (`driver.rs`), with limits on time and memory. Parsers of
//! files by operators have unnamed tests ([`check`]), which run in `cargo test` alone.
//!
//! Structured inputs are written by the modules in [`generate`] from the same bytes: a mutated byte is a
//! different choice of the generator, and failures shrink to few choices. The generators know the formats,
//! and depend on no other crate of the workspace.

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

pub use choices::ByteChoices;
pub use targets::{FuzzTarget, QUARANTINE_MB, RSS_MB, TARGETS};

/// The maximum number of random inputs of a test.
pub const MAX_INPUTS: u32 = 1000;
/// The time after which a test gets no further inputs.
const TEST_TIME: Duration = Duration::from_secs(2);
/// The maximum length of a random input in bytes: of texts, before words are inserted, and of choices.
const TEXT_LENGTH: usize = 256;
const CHOICES_LENGTH: usize = 1024;

/// Runs a target of [`TARGETS`], with raw bytes and, if there are words, with texts that contain them.
///
/// # Panics
/// If the oracle does, or no target has the name.
pub fn run(name: &str, words: &[&str], oracle: impl Fn(&[u8])) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("no target is called `{name}`"));
    #[cfg(feature = "libfuzzer")]
    if driver::is_fuzzing() {
        return driver::run_libfuzzer(target, words, &oracle);
    }
    for (path, seed) in read_seeds(target) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| oracle(&seed))) {
            let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
            panic!("the seed {}: {text}", path.display());
        }
    }
    check_random(words, if words.is_empty() { CHOICES_LENGTH } else { TEXT_LENGTH }, oracle);
}

/// Checks a function with random bytes, and with texts that contain these words, since random bytes rarely
/// match a grammar.
///
/// # Panics
/// If the function does, with the smallest failing input found.
pub fn check(words: &[&str], oracle: impl Fn(&[u8])) {
    check_random(words, TEXT_LENGTH, oracle);
}

/// Checks a function with random bytes of up to this length.
fn check_random(words: &[&str], length: usize, oracle: impl Fn(&[u8])) {
    let begun = Instant::now();
    let config = Config { cases: MAX_INPUTS, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&vec(any::<u8>(), 0..=length), |bytes| {
        if begun.elapsed() < TEST_TIME {
            oracle(&bytes);
            if !words.is_empty() {
                oracle(&expand_words(&bytes, words));
            }
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// The committed inputs of a target, sorted by name.
fn read_seeds(target: &FuzzTarget) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let read = |path: PathBuf| std::fs::read(&path).ok().map(|bytes| (path, bytes));
    paths.into_iter().filter_map(read).collect()
}

/// Converts bytes to a text: high bytes become words, the others are kept.
#[must_use]
pub fn expand_words(bytes: &[u8], words: &[&str]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4);
    for &byte in bytes {
        match words.get(usize::from(byte & 0x7f) % words.len().max(1)) {
            Some(word) if byte >= 0x40 => text.extend_from_slice(word.as_bytes()),
            _ => text.push(byte & 0x7f),
        }
    }
    text
}

/// Damages a valid input: of every three bytes, two select the position and the third the change there.
#[must_use]
pub fn damage_input(good: &[u8], bytes: &[u8]) -> Vec<u8> {
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
