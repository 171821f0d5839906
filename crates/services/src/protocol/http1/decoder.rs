//! Incremental decoding of message bodies (RFC 9112, sections 6 and 7).

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::io::AsyncRead;
use tokio::task::coop::poll_proceed;

use super::fields::parse_trailers;
use super::input::ReceiveBuffer;
use crate::body::BodyError;

/// The longest line with a chunk's size and extensions, and the largest trailers, in bytes.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS: usize = 16 << 10;

/// The framing of a body, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// The body ends after this number of bytes.
    Length(u64),
    /// The body ends after the last chunk and the trailers.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

/// The state of decoding a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDecoder {
    /// This number of bytes is expected.
    Length(u64),
    /// All bytes until the connection closes belong to the body.
    UntilClose,
    /// A line with the size of a chunk is expected.
    Size,
    /// This number of bytes of a chunk is expected.
    Chunk(u64),
    /// The line end after a chunk is expected.
    ChunkEnd,
    /// The trailers after the last chunk are expected.
    Trailers,
    /// The body has ended.
    Done,
    /// The end of the body is unknown, so no further messages can be read: the connection must be closed.
    Failed(FramingError),
}

/// A part of a body.
#[derive(Debug, PartialEq)]
pub enum BodyPart {
    /// Data of the body.
    Data(Bytes),
    /// The trailers after the body.
    Trailers(HeaderMap),
    /// The end of the body.
    End,
    /// More input is needed.
    NeedsInput,
}

/// An error in the framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A malformed chunk.
    #[error("a chunk of the body has no size, or a wrong one")]
    Chunk,
    /// Malformed trailers.
    #[error("the trailers are malformed or too large")]
    Trailers,
    /// The connection ended before the body.
    #[error("the body is incomplete")]
    Incomplete,
}

impl BodyDecoder {
    /// Creates a decoder for a body with this framing.
    #[must_use]
    pub fn new(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(0) => Self::Done,
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::Size,
            BodyFraming::UntilClose => Self::UntilClose,
        }
    }

    /// Returns the next part of the body.
    ///
    /// # Errors
    /// A body whose end two readers could interpret differently.
    pub fn next(&mut self, input: &mut ReceiveBuffer) -> Result<BodyPart, FramingError> {
        self.skip_framing(input)?;
        self.decode_part(input).inspect_err(|error| *self = Self::Failed(*error))
    }

    fn decode_part(&mut self, input: &mut ReceiveBuffer) -> Result<BodyPart, FramingError> {
        match *self {
            Self::Done => Ok(BodyPart::End),
            Self::Trailers => self.read_trailers(input),
            Self::Length(left) if !input.is_empty() => {
                let data = take_data(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::Done } else { Self::Length(left) };
                Ok(BodyPart::Data(data))
            }
            Self::Chunk(left) if !input.is_empty() => {
                let data = take_data(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::ChunkEnd } else { Self::Chunk(left) };
                Ok(BodyPart::Data(data))
            }
            Self::UntilClose if !input.is_empty() => Ok(BodyPart::Data(input.take_all())),
            _ => Ok(BodyPart::NeedsInput),
        }
    }

    /// Advances to the start of data or trailers, as far as the input permits.
    ///
    /// # Errors
    /// The errors of [`Self::next`].
    pub fn skip_framing(&mut self, input: &mut ReceiveBuffer) -> Result<(), FramingError> {
        self.advance_framing(input).inspect_err(|error| *self = Self::Failed(*error))
    }

    fn advance_framing(&mut self, input: &mut ReceiveBuffer) -> Result<(), FramingError> {
        loop {
            *self = match *self {
                Self::Failed(wrong) => return Err(wrong),
                Self::Size => match parse_line(input, parse_chunk_size)? {
                    Some(0) => Self::Trailers,
                    Some(size) => Self::Chunk(size),
                    None => return Ok(()),
                },
                Self::ChunkEnd => match parse_line(input, |line| line.is_empty().then_some(()))? {
                    Some(()) => Self::Size,
                    None => return Ok(()),
                },
                Self::Trailers if input.bytes().starts_with(b"\r\n") => {
                    input.skip(2);
                    Self::Done
                }
                _ => return Ok(()),
            }
        }
    }

    fn read_trailers(&mut self, input: &mut ReceiveBuffer) -> Result<BodyPart, FramingError> {
        match input.head_length() {
            Some(end) if end <= MAX_TRAILERS => {
                let fields = parse_trailers(&input.take(end)).ok_or(FramingError::Trailers)?;
                *self = Self::Done;
                Ok(BodyPart::Trailers(fields))
            }
            None if input.bytes().len() < MAX_TRAILERS => Ok(BodyPart::NeedsInput),
            _ => Err(FramingError::Trailers),
        }
    }

    /// Returns the next frame of the body, reading input as needed. Each frame consumes tokio's cooperative
    /// budget: a buffer of tiny chunks may contain thousands of frames that are available at once, and other
    /// tasks must run in between.
    pub fn poll_frame<S: AsyncRead + Unpin>(
        &mut self,
        input: &mut ReceiveBuffer,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        let budget = ready!(poll_proceed(context));
        loop {
            let frame = match self.next(input)? {
                BodyPart::Data(data) => Some(Frame::data(data)),
                BodyPart::Trailers(fields) => Some(Frame::trailers(fields)),
                BodyPart::End => None,
                BodyPart::NeedsInput => {
                    if !ready!(input.poll_more(stream, context))? {
                        self.end_of_input()?;
                    }
                    continue;
                }
            };
            // The reader may know the length and not poll again, so the end is processed at once.
            self.skip_framing(input)?;
            budget.made_progress();
            return Poll::Ready(Ok(frame));
        }
    }

    /// The remaining length, if it is known.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        match *self {
            Self::Length(left) => SizeHint::with_exact(left),
            Self::Done => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }

    /// Handles the end of the connection.
    ///
    /// # Errors
    /// [`FramingError::Incomplete`] if the body is incomplete.
    fn end_of_input(&mut self) -> Result<(), FramingError> {
        let (next, end) = match self {
            Self::UntilClose | Self::Done => (Self::Done, Ok(())),
            _ => (Self::Failed(FramingError::Incomplete), Err(FramingError::Incomplete)),
        };
        *self = next;
        end
    }
}

fn take_data(input: &mut ReceiveBuffer, left: u64) -> Bytes {
    input.take(usize::try_from(left).unwrap_or(usize::MAX))
}

/// Parses the next line, if it is complete.
fn parse_line<T>(
    input: &mut ReceiveBuffer,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, FramingError> {
    let bytes = input.bytes();
    let Some(end) = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(FramingError::Chunk) };
    };
    let line = bytes[..end].strip_suffix(b"\r").filter(|line| !line.contains(&b'\r'));
    let said = line.and_then(read).ok_or(FramingError::Chunk)?;
    input.skip(end + 1);
    Ok(Some(said))
}

/// Parses the size of a chunk. Its extensions must not contain control characters (RFC 9112, section 7.1.1).
fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return None;
    }
    let digits = line.split(|byte| *byte == b';').next()?;
    let blanks = digits.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let digits = &digits[..digits.len() - blanks];
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u64::from_str_radix(text, 16).ok()
}
