//! Programs that the operator has blocked, by the SHA-256 of their bytes.
//!
//! A blocked program does not run, however a request refers to it: by its bytes, token, hash, signature or
//! stored name. It is not compiled either, in case compiling it does the harm. Every request is checked
//! against the active config, so a reload suffices: cached code, tokens and warm instances of the program are
//! not used any more.

use std::collections::HashSet;

use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source::ProgramHash;
use crate::problem::QueryError;

/// Rules for the programs of all query routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramsConfig {
    /// Programs that must not run, by the SHA-256 of their bytes in hexadecimal, as `sha256sum query.js`
    /// prints it. Applied on reload. A program with a single changed byte is another program.
    pub blocked: Vec<String>,
}

/// The blocked programs of a config.
#[derive(Debug, Default)]
pub struct BlockedPrograms(HashSet<ProgramHash>);

impl BlockedPrograms {
    /// Reads the blocked programs, or returns every invalid entry. The pointers are relative to `programs`.
    ///
    /// # Errors
    /// Entries that are not 64 hexadecimal digits.
    pub fn new(config: &ProgramsConfig) -> Result<Self, Vec<Diagnostic>> {
        let (mut blocked, mut problems) = (HashSet::new(), Vec::new());
        for (index, text) in config.blocked.iter().enumerate() {
            match parse_hash(text) {
                Some(hash) => drop(blocked.insert(hash)),
                None => problems.push(Diagnostic::new(
                    format!("/blocked/{index}"),
                    "this is not a SHA-256, which has 64 hexadecimal digits",
                    "write the output of `sha256sum` for the program's file",
                )),
            }
        }
        if problems.is_empty() { Ok(Self(blocked)) } else { Err(problems) }
    }

    /// Whether a program of this hash is blocked.
    pub(crate) fn contains(&self, hash: &ProgramHash) -> bool {
        !self.0.is_empty() && self.0.contains(hash)
    }

    /// Rejects a blocked program.
    ///
    /// # Errors
    /// [`QueryError::ProgramBlocked`].
    pub(crate) fn check_not_blocked(&self, hash: &ProgramHash) -> Result<(), QueryError> {
        if self.contains(hash) { Err(QueryError::ProgramBlocked) } else { Ok(()) }
    }
}

fn parse_hash(text: &str) -> Option<ProgramHash> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes = bytes.collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_64_hexadecimal_digits() {
        let good = ["ab".repeat(32), "AB".repeat(32), "00".repeat(32)];
        let blocked = BlockedPrograms::new(&ProgramsConfig { blocked: good.into() }).unwrap();
        assert!(blocked.contains(&[0xab; 32]) && blocked.contains(&[0; 32]) && !blocked.contains(&[1; 32]));
        let bad = [
            String::new(),
            "ab".repeat(31),
            "ab".repeat(33),
            "xy".repeat(32),
            format!("{}a", "ab".repeat(32)),
        ];
        let problems = BlockedPrograms::new(&ProgramsConfig { blocked: bad.into() }).unwrap_err();
        let pointers: Vec<_> = problems.iter().map(|problem| problem.location.pointer()).collect();
        assert_eq!(pointers, ["/blocked/0", "/blocked/1", "/blocked/2", "/blocked/3", "/blocked/4"]);
    }
}
