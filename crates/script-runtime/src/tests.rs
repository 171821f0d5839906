//! Tests of services on real workers, with Node.js and the store, and with a misbehaving upstream service.
//! The code is written by hand in the form that the compiler emits, so that the tests do not depend on the
//! compiler.

mod bad;
mod caching;
mod calls;
mod composed;
mod hello;
mod listings;
mod long;
mod lost;
mod redirects;
mod reload;
pub(crate) mod rig;
mod state;
