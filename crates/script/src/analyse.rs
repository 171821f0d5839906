//! Analyses.
pub(crate) mod code;
