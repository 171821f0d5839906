//! Calls to services: a step's arguments, keys or representations become requests, and the results are
//! locations in the responses.
//!
//! `rest/` calls operations of REST services, `remote/` sends documents to GraphQL services, and `keyed/`
//! fetches values for many objects through either. All of them use the services and the call budget of
//! `call_context.rs`, parse a response once (`service_response.rs`), and return an `outcome.rs`.
//! `call_failure.rs` defines the errors of a call.

pub(crate) mod call_context;
pub(crate) mod call_failure;
pub(crate) mod keyed;
pub(crate) mod outcome;
pub(crate) mod remote;
pub(crate) mod rest;
pub(crate) mod service_response;
#[cfg(test)]
pub(crate) mod shop_fixture;
