//! S at run time.

mod ask;
mod config;
mod frame;
mod workers;
