//! Descriptions of an aggregate for people and tools: its calls as text or as a chart (`explain.rs`), and its
//! OpenAPI operation (`operation.rs`).

pub(crate) mod explain;
mod operation;
