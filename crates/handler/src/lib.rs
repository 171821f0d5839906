//! The interface between the gateway and its handlers: a handler takes a [`HandlerRequest`] and returns a
//! [`HandlerResponse`], or an error that becomes a problem document.
//!
//! Arguments and results are fields of these types. Extensions of HTTP messages only carry protocol upgrades
//! ([`services::ServiceTunnel`]).

mod caller_limits;
mod request;
mod response;

pub use caller_limits::CallerLimits;
pub use request::HandlerRequest;
pub use response::{HandlerResponse, HandlerResult, LoggedProblem};
