//! Where the body of a message ends (RFC 9112, sections 6 and 7), as it arrives.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::io::AsyncRead;
use tokio::task::coop::poll_proceed;

use super::fields::trailers;
use super::input::Input;
use crate::body::Error;

/// The longest line with a chunk's size and extensions, and the largest trailers.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS: usize = 16 << 10;

/// What tells where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk and the trailers.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// Finds the body in what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// So much is still to come.
    Length(u64),
    /// All that comes.
    UntilClose,
    /// The line with a chunk's size.
    Size,
    /// So much of a chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// The fields after the last chunk.
    Trailers,
    /// Nothing is to come.
    Done,
    /// Where the body ends is not known, and so nothing behind it is read: the connection has to end.
    Refused(Wrong),
}

/// What a decoder finds.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// Some of the body.
    Data(Bytes),
    /// What follows it.
    Trailers(HeaderMap),
    /// Its end.
    End,
    /// Nothing before more has come.
    More,
}

/// Why a body is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A chunk that is none.
    #[error("a chunk of the body has no size, or does not end where it says")]
    Chunk,
    /// Trailers that are none.
    #[error("the trailers are no headers, or too large")]
    Trailers,
    /// The connection ended before.
    #[error("the body broke off before its end")]
    Short,
}

impl Decoder {
    /// For a body that ends so.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Size,
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// The next part of the body.
    ///
    /// # Errors
    /// When two readers could find different ends.
    pub fn next(&mut self, input: &mut Input) -> Result<Part, Wrong> {
        self.settle(input)?;
        self.take(input).inspect_err(|wrong| *self = Self::Refused(*wrong))
    }

    fn take(&mut self, input: &mut Input) -> Result<Part, Wrong> {
        match *self {
            Self::Done => Ok(Part::End),
            Self::Trailers => self.trailers(input),
            Self::Length(left) if !input.is_empty() => {
                let data = piece(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::Done } else { Self::Length(left) };
                Ok(Part::Data(data))
            }
            Self::Chunk(left) if !input.is_empty() => {
                let data = piece(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::ChunkEnd } else { Self::Chunk(left) };
                Ok(Part::Data(data))
            }
            Self::UntilClose if !input.is_empty() => Ok(Part::Data(input.take_all())),
            _ => Ok(Part::More),
        }
    }

    /// Goes on to where data or trailers begin, as far as what has come allows.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn settle(&mut self, input: &mut Input) -> Result<(), Wrong> {
        self.advance(input).inspect_err(|wrong| *self = Self::Refused(*wrong))
    }

    fn advance(&mut self, input: &mut Input) -> Result<(), Wrong> {
        loop {
            *self = match *self {
                Self::Refused(wrong) => return Err(wrong),
                Self::Size => match line(input, size)? {
                    Some(0) => Self::Trailers,
                    Some(size) => Self::Chunk(size),
                    None => return Ok(()),
                },
                Self::ChunkEnd => match line(input, |line| line.is_empty().then_some(()))? {
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

    fn trailers(&mut self, input: &mut Input) -> Result<Part, Wrong> {
        match input.head_length() {
            Some(end) if end <= MAX_TRAILERS => {
                let fields = trailers(&input.take(end)).ok_or(Wrong::Trailers)?;
                *self = Self::Done;
                Ok(Part::Trailers(fields))
            }
            None if input.bytes().len() < MAX_TRAILERS => Ok(Part::More),
            _ => Err(Wrong::Trailers),
        }
    }

    /// The next of the body, reading as much as it takes. Each frame takes of the task's budget: a buffer of tiny chunks is
    /// thousands of frames that nobody waits for, and other tasks have their turn between them.
    pub fn poll_frame<S: AsyncRead + Unpin>(
        &mut self,
        input: &mut Input,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        let budget = ready!(poll_proceed(context));
        loop {
            let frame = match self.next(input)? {
                Part::Data(data) => Some(Frame::data(data)),
                Part::Trailers(fields) => Some(Frame::trailers(fields)),
                Part::End => None,
                Part::More => {
                    if !ready!(input.poll_more(stream, context))? {
                        self.end()?;
                    }
                    continue;
                }
            };
            // Whoever reads may know the length and not ask again: the end is looked for at once.
            self.settle(input)?;
            budget.made_progress();
            return Poll::Ready(Ok(frame));
        }
    }

    /// How much is still to come, as far as that is known.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        match *self {
            Self::Length(left) => SizeHint::with_exact(left),
            Self::Done => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// Where the body had not.
    fn end(&mut self) -> Result<(), Wrong> {
        let (next, end) = match self {
            Self::UntilClose | Self::Done => (Self::Done, Ok(())),
            _ => (Self::Refused(Wrong::Short), Err(Wrong::Short)),
        };
        *self = next;
        end
    }
}

fn piece(input: &mut Input, left: u64) -> Bytes {
    input.take(usize::try_from(left).unwrap_or(usize::MAX))
}

/// What the next line says, if all of it is there.
fn line<T>(input: &mut Input, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, Wrong> {
    let bytes = input.bytes();
    let Some(end) = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(Wrong::Chunk) };
    };
    let line = bytes[..end].strip_suffix(b"\r").filter(|line| !line.contains(&b'\r'));
    let said = line.and_then(read).ok_or(Wrong::Chunk)?;
    input.skip(end + 1);
    Ok(Some(said))
}

/// The size in a chunk's line, before its extensions, which have no control characters (RFC 9112, 7.1.1).
fn size(line: &[u8]) -> Option<u64> {
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
