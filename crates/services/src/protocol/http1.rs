//! HTTP/1.1 (RFC 9112), as far as clients and servers share it: buffered input, header fields, message
//! framing, and sending of messages. `transport/http1` is the client built on it, `gateway/src/server/http1`
//! the server.
//!
//! `httparse` parses heads. Message framing is implemented here, strictly, and fuzzed: two readers must never
//! disagree about the end of a body (request smuggling).

mod decoder;
mod fields;
mod input;
mod message_writer;
#[cfg(test)]
pub(crate) mod tests;

pub use decoder::{BodyDecoder, BodyFraming, BodyPart, FramingError};
pub use fields::{
    AmbiguousFraming, MAX_TRAILERS, announced_trailers, content_length, has_bare_line_feed, is_chunked,
    parse_fields, write_field,
};
pub use input::ReceiveBuffer;
pub use message_writer::SendingMessage;
