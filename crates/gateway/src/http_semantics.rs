//! The client side of HTTP, independent of routes and of the protocol's version: the client of a connection
//! and its certificate, trusted proxies in front of the gateway, the validation of requests, cross-origin
//! rules, content encodings, unsent bytes of responses, and problem documents.

pub(crate) mod client;
pub(crate) mod cors;
pub(crate) mod encode;
pub(crate) mod own_hosts;
pub(crate) mod peer_certificate;
pub(crate) mod problem_details;
pub(crate) mod request_refusal;
pub(crate) mod request_validation;
pub(crate) mod trusted_proxies;
pub(crate) mod unsent_bytes;
