//! The HTTP messages of handlers: requests in the form in which a handler gets them, and responses in the
//! form in which it gives them.
//!
//! `script_request.rs` converts requests, `handler_reply.rs` responses, and `location.rs` resolves the
//! targets of redirects.

pub(crate) mod handler_reply;
pub(crate) mod location;
pub(crate) mod script_request;
