//! Errors of filters, each with a stable code: problems of requests, and reasons to refuse a config.

mod problem;
mod refused;

pub use problem::FilterFailure;
pub use refused::{FilterRefusalReason, RefusedFilter};
