//! S at run time.

pub mod state;
