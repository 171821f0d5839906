//! The query runtime under bad input. Every test checks the exact problem code, and then sends a valid query
//! to the same gateway.

mod blocked_programs;
mod bytes;
mod cached_programs;
mod descriptions;
mod host;
mod http;
mod javascript;
mod json;
mod limits;
mod memory;
mod modules;
mod native_replays;
mod programs;
mod recordings;
mod signed_programs;
mod stored_programs;
mod texts;
mod upstream;
