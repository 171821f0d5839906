//! Tests of aggregates against in-process services.

mod caching;
mod descriptions;
mod documented_examples;
mod failures;
pub(crate) mod fixture;
mod fuzz;
mod hostile;
mod invalid_declarations;
mod joins;
mod offloading;
mod shapes;
mod streams;
