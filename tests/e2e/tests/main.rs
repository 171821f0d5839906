//! End-to-end tests of the binary `orfa`: each starts gateways, services and clients as their users do.
//!
//! The crate depends on no crate of the gateway but the definitions that guests share; `support` finds or
//! builds the binary. The other modules are topics: what a gateway answers (`query`, `script`, `graphql`,
//! `aggregate`, `proxy`), how it is operated (`operations`, `commands`) and the things around it (`clients`,
//! `examples`, `docs`).

mod aggregate;
mod clients;
mod commands;
mod docs;
mod examples;
mod graphql;
mod operations;
mod proxy;
mod query;
mod script;
mod support;
