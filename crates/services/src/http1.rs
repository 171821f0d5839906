//! HTTP/1.1 (RFC 9112) as far as both ends of a connection do it alike: what was read and is not used yet,
//! header fields, where a body ends, and a message on its way out. `transport/http1` is the client made of it,
//! `gateway/src/server/http1` the server.
//!
//! `httparse` reads heads; where a message ends is decided here, strictly, and fuzzed: what one reader takes for
//! the end of a body, another must not take for the middle of it.

mod decoder;
mod fields;
mod input;
mod sending;
#[cfg(test)]
pub(crate) mod tests;

pub use decoder::{Decoder, Framing, Part, Wrong};
pub use fields::{Doubt, announced, content_length, fields, has_bare_line_feed, is_chunked, put};
pub use input::Input;
pub use sending::Sending;
