//! Programs that the operator has blocked, by the SHA-256 of their bytes.
//!
//! A blocked program does not run, however a request names it: sent, by token, by hash, by signature or by a stored name;
//! and it is not compiled, in case that is the harm it does. Every request is judged by the config in force, so a reload
//! is enough: what is kept of the program, its tokens and its warm instances are not used any more.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use services::ConfigProblem;

use crate::owner::Hash;
use crate::problem::QueryError;

/// Rules for the programs of all query routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramsConfig {
    /// Programs that must not run, by the SHA-256 of their bytes in hexadecimal: what `sha256sum query.js` prints. A reload
    /// is enough. One changed byte makes another program.
    pub blocked: Vec<String>,
}

/// The blocked programs of a config.
#[derive(Debug, Default)]
pub struct BlockedPrograms(HashSet<Hash>);

impl BlockedPrograms {
    /// The blocked programs, or every entry that is no hash. The pointers are those below `programs`.
    ///
    /// # Errors
    /// Entries that are not 64 hexadecimal digits.
    pub fn new(config: &ProgramsConfig) -> Result<Self, Vec<ConfigProblem>> {
        let (mut blocked, mut problems) = (HashSet::new(), Vec::new());
        for (index, text) in config.blocked.iter().enumerate() {
            match hash(text) {
                Some(hash) => drop(blocked.insert(hash)),
                None => problems.push(ConfigProblem {
                    pointer: format!("/blocked/{index}"),
                    message: "this is no SHA-256: it has to be 64 hexadecimal digits".into(),
                    hint: "write what `sha256sum` prints of the program's file".into(),
                }),
            }
        }
        if problems.is_empty() { Ok(Self(blocked)) } else { Err(problems) }
    }

    /// Whether a program of this hash is blocked.
    pub(crate) fn contains(&self, hash: &Hash) -> bool {
        !self.0.is_empty() && self.0.contains(hash)
    }

    /// Refuses a blocked program.
    ///
    /// # Errors
    /// [`QueryError::ProgramBlocked`].
    pub(crate) fn check(&self, hash: &Hash) -> Result<(), QueryError> {
        if self.contains(hash) { Err(QueryError::ProgramBlocked) } else { Ok(()) }
    }
}

fn hash(text: &str) -> Option<Hash> {
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
    fn a_blocked_program_is_named_by_64_hexadecimal_digits() {
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
        let pointers: Vec<_> = problems.iter().map(|problem| &*problem.pointer).collect();
        assert_eq!(pointers, ["/blocked/0", "/blocked/1", "/blocked/2", "/blocked/3", "/blocked/4"]);
    }
}
