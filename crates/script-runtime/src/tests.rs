//! Tests of services on real workers, with Node.js and the store, and with a misbehaving upstream service.
//! The code is written by hand in the form that the compiler emits, so that the tests do not depend on the
//! compiler.

mod basic_requests;
mod caching;
mod calls;
mod faulty_handlers;
pub(crate) mod fixture;
mod fuzz;
mod inline_evaluation;
mod listings;
mod offloaded_work;
mod redirects;
mod reload;
mod state;
mod worker_loss;
