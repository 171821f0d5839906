//! The query protocol over HTTP: reads requests and their header fields, and builds responses.
//!
//! `query_request.rs` reads a request, `fields.rs` finds its ORFA header fields, `cache_header.rs` and
//! `trust_header.rs` parse two of them, and `response.rs` builds the response from a program's answer. The
//! protocol is specified in docs/query.md.

mod cache_header;
mod fields;
mod query_request;
mod response;
mod trust_header;

pub(crate) use cache_header::{CACHE_HEADER, CacheModeResult, cache_response_header};
pub(crate) use query_request::{FORM_MEDIA_TYPE, METHODS, QueryRequest};
pub(crate) use response::{PhaseTimes, build_response, make_private, server_timing, vary_header};
