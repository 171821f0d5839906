//! The body of an answer (RFC 9112, sections 6 and 7), as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HOST};
use http_body::{Frame, SizeHint};
use httparse::Status;

use super::input::Input;
use super::request::Outgoing;
use super::response::{Framing, headers};
use super::{Connection, Endpoint, Parts};
use crate::body::Error;
use crate::headers::strip_hop_by_hop;

/// The longest line with a chunk's size and extensions, and the largest trailers.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS: usize = 16 << 10;
const MAX_TRAILER_FIELDS: usize = 64;

/// The body of an answer that was not there at once, with the connection that it arrives on.
pub(super) struct Arriving {
    decoder: Decoder,
    /// `None` once the answer is there to its end, or broke off.
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    outgoing: Outgoing,
    /// Where the connection belongs, if it outlives the answer.
    home: Option<Endpoint>,
}

/// Finds the body in what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// So much is still to come.
    Length(u64),
    UntilClose,
    /// The line with a chunk's size.
    Size,
    /// So much of a chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    Done,
}

/// What a decoder finds.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// Nothing before more has come.
    More,
}

/// Why a body is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("a chunk of the answer has no size, or does not end where it says")]
    Chunk,
    #[error("the trailers of the answer are no headers, or too large")]
    Trailers,
    #[error("the answer broke off before its end")]
    Short,
}

impl Decoder {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Size,
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// The next part of the body.
    pub(super) fn next(&mut self, input: &mut Input) -> Result<Part, Wrong> {
        self.settle(input)?;
        match *self {
            Self::Done => Ok(Part::End),
            Self::Trailers => self.trailers(input),
            Self::Length(left) if !input.is_empty() => {
                let data = take(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::Done } else { Self::Length(left) };
                Ok(Part::Data(data))
            }
            Self::Chunk(left) if !input.is_empty() => {
                let data = take(input, left);
                let left = left - data.len() as u64;
                *self = if left == 0 { Self::ChunkEnd } else { Self::Chunk(left) };
                Ok(Part::Data(data))
            }
            Self::UntilClose if !input.is_empty() => Ok(Part::Data(input.take_all())),
            _ => Ok(Part::More),
        }
    }

    /// Goes on to where data or trailers begin, as far as what has come allows.
    pub(super) fn settle(&mut self, input: &mut Input) -> Result<(), Wrong> {
        loop {
            *self = match *self {
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
        let end = input.bytes().windows(4).position(|window| window == b"\r\n\r\n").map(|end| end + 4);
        match end {
            Some(end) if end <= MAX_TRAILERS => {
                *self = Self::Done;
                Ok(Part::Trailers(fields(&input.take(end))?))
            }
            None if input.bytes().len() < MAX_TRAILERS => Ok(Part::More),
            _ => Err(Wrong::Trailers),
        }
    }

    /// The connection has ended.
    fn end(&mut self) -> Result<(), Wrong> {
        match std::mem::replace(self, Self::Done) {
            Self::UntilClose | Self::Done => Ok(()),
            _ => Err(Wrong::Short),
        }
    }
}

fn take(input: &mut Input, left: u64) -> Bytes {
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

/// The size in a chunk's line, before its extensions.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u64::from_str_radix(text, 16).ok()
}

/// Trailers without those that would say something of the message that was read already (RFC 9110, 6.5.1).
fn fields(text: &Bytes) -> Result<HeaderMap, Wrong> {
    let mut room = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
    let Ok(Status::Complete((_, found))) = httparse::parse_headers(text, &mut room) else {
        return Err(Wrong::Trailers);
    };
    let mut fields = headers(text, found).map_err(|_| Wrong::Trailers)?;
    strip_hop_by_hop(&mut fields);
    for name in [CONTENT_LENGTH, HOST] {
        fields.remove(name);
    }
    Ok(fields)
}

impl Arriving {
    pub(super) fn new(
        decoder: Decoder,
        connection: Connection,
        outgoing: Outgoing,
        home: Option<Endpoint>,
    ) -> Self {
        Self { decoder, open: Some(Open { connection, outgoing, home }) }
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<Part, Error>> {
        let Some(open) = &mut self.open else { return Poll::Ready(Ok(Part::End)) };
        let Parts { stream, input } = &mut *open.connection.0;
        open.outgoing.go_on(stream, context)?;
        loop {
            match self.decoder.next(input)? {
                Part::More => {}
                part => {
                    // Whoever reads may know the length and not ask again: the end is looked for at once.
                    self.decoder.settle(input)?;
                    return Poll::Ready(Ok(part));
                }
            }
            if !ready!(input.poll_more(stream, context))? {
                self.decoder.end()?;
            }
        }
    }

    /// Sends the connection home once the answer is there to its end.
    fn finish(&mut self) {
        let Some(Open { connection, outgoing, home }) = self.open.take() else { return };
        if let Some(home) = home.filter(|_| outgoing.is_done()) {
            connection.keep(home);
        }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let part = ready!(self.poll_part(context));
        if part.is_err() {
            self.open = None;
            self.decoder = Decoder::Done;
        } else if self.decoder == Decoder::Done {
            self.finish();
        }
        Poll::Ready(match part {
            Ok(Part::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Part::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Ok(Part::End | Part::More) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.decoder == Decoder::Done
    }

    fn size_hint(&self) -> SizeHint {
        match self.decoder {
            Decoder::Length(left) => SizeHint::with_exact(left),
            Decoder::Done => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}
