//! The query runtime under bad input. Every test checks the exact problem code, and then sends a valid query
//! to the same gateway.

mod blocked;
mod bytes;
mod cached;
mod described;
mod host;
mod http;
mod javascript;
mod json;
mod limits;
mod memory;
mod modules;
mod natively;
mod programs;
mod recordings;
mod stored;
mod texts;
mod trusted;
mod upstream;
