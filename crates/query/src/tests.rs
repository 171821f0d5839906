//! Tests of several modules of the crate.

mod fuzz;
