//! The query runtime under bad input, and what is right in spite of it: every test names the exact code
//! of the problem, and then asks a good query of the same gateway.

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
