//! Emission.
pub(crate) mod edits;
mod output;
