//! Requests and responses on their way through the gateway: callers, filters, content codings, long
//! responses, gRPC and upgrades.

mod encoding;
mod filters;
mod grpc;
mod identity;
mod long_responses;
mod upgrade;
