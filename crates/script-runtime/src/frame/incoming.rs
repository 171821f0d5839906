//! Frames from a worker: splitting the byte stream into frames, and strict parsing.

use bytes::{Buf, Bytes, BytesMut};

use super::{Kind, LONGEST, Payload};

/// The length of the frame type and the run number.
const HEAD: usize = 5;
/// Buffer space that is reserved for an incomplete frame, unless that much has already arrived.
const ROOM: usize = 64 << 10;

/// A protocol error in a worker's byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes has an invalid length")]
    Length(usize),
    #[error("a worker does not send frames of type {0}")]
    Type(u8),
    #[error("a frame of type {0} is incomplete or has extra bytes at its end")]
    Shape(u8),
    #[error("a frame of type {0} has text that is not UTF-8")]
    Text(u8),
    #[error("a frame of type {0} has a body of an unknown kind")]
    Kind(u8),
}

/// A message of a worker about a run or a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Hello {
        worker: u32,
        engine: String,
    },
    Ready,
    Broken {
        message: String,
        stack: String,
    },
    Call(Call),
    Answer(Answer),
    Commit {
        changes: Bytes,
    },
    Declare(Declare),
    End {
        answer: Option<Answer>,
        changes: Option<Bytes>,
        cpu_micros: u32,
    },
    Fail(Fail),
    Log {
        level: u8,
        text: String,
    },
    /// The handler responded a second time, at this position.
    Twice {
        stack: String,
    },
    Pong,
    Stuck {
        millis: u32,
    },
    Remove,
}

/// A resource call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) site: u32,
    /// Whether the response goes to the client, bypassing the handler.
    pub(crate) passes: bool,
    /// Whether no code of the handler reads the response, which becomes part of its own unchanged.
    pub(crate) is_unread: bool,
    pub(crate) method: u8,
    pub(crate) url: String,
    /// Parameters with their types, as a JSON object.
    pub(crate) query: Bytes,
    pub(crate) body: Payload,
}

/// A handler's response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// 0: derived from the kind of the body.
    pub(crate) status: u16,
    /// A JSON object, or empty.
    pub(crate) headers: Bytes,
    pub(crate) body: Payload,
}

/// The declaration of a nested resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declare {
    pub(crate) call: u32,
    pub(crate) site: u32,
    pub(crate) resource: u16,
    pub(crate) path: String,
    pub(crate) captures: Bytes,
    pub(crate) initial: Bytes,
}

/// The failure of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fail {
    pub(crate) kind: u8,
    pub(crate) site: u32,
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) stack: String,
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Bytes that do not form a complete frame yet.
    pub(crate) buffer: BytesMut,
}

impl Reader {
    /// Returns the next complete frame: its run and its message.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, From)>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEAD..=LONGEST).contains(&length) {
            return Err(FrameError::Length(length));
        }
        let missing = (length + 4).saturating_sub(self.buffer.len());
        if missing > 0 {
            // The length is untrusted: the buffer grows only with the bytes that arrive.
            self.buffer.reserve(missing.min(self.buffer.len().max(ROOM)));
            return Ok(None);
        }
        self.buffer.advance(4);
        let mut frame = self.buffer.split_to(length).freeze();
        let (kind, run) = (frame.get_u8(), frame.get_u32_le());
        let mut fields = Fields { kind, rest: frame };
        let from = fields.from()?;
        if fields.rest.is_empty() { Ok(Some((run, from))) } else { Err(FrameError::Shape(kind)) }
    }
}

/// The fields of a frame that are still to be parsed.
struct Fields {
    kind: u8,
    rest: Bytes,
}

impl Fields {
    fn from(&mut self) -> Result<From, FrameError> {
        Ok(match self.kind {
            64 => From::Hello { worker: self.u32()?, engine: self.text()? },
            65 => From::Ready,
            66 => From::Broken { message: self.text()?, stack: self.text()? },
            67 => From::Call(self.call()?),
            68 => From::Answer(self.answer()?),
            69 => From::Commit { changes: self.bytes()? },
            70 => From::Declare(Declare {
                call: self.u32()?,
                site: self.u32()?,
                resource: self.u16()?,
                path: self.text()?,
                captures: self.bytes()?,
                initial: self.bytes()?,
            }),
            71 => {
                let flags = self.u8()?;
                let answer = (flags & 1 != 0).then(|| self.answer()).transpose()?;
                let changes = (flags & 2 != 0).then(|| self.bytes()).transpose()?;
                From::End { answer, changes, cpu_micros: self.u32()? }
            }
            72 => From::Fail(Fail {
                kind: self.u8()?,
                site: self.u32()?,
                status: self.u16()?,
                message: self.text()?,
                stack: self.text()?,
            }),
            73 => From::Log { level: self.u8()?, text: self.text()? },
            74 => From::Pong,
            75 => From::Stuck { millis: self.u32()? },
            76 => From::Remove,
            77 => From::Twice { stack: self.text()? },
            kind => return Err(FrameError::Type(kind)),
        })
    }

    fn call(&mut self) -> Result<Call, FrameError> {
        let (number, site, flags) = (self.u32()?, self.u32()?, self.u8()?);
        Ok(Call {
            number,
            site,
            passes: flags & 1 != 0,
            is_unread: flags & 2 != 0,
            method: self.u8()?,
            url: self.text()?,
            query: self.bytes()?,
            body: self.body()?,
        })
    }

    fn answer(&mut self) -> Result<Answer, FrameError> {
        Ok(Answer { status: self.u16()?, headers: self.bytes()?, body: self.body()? })
    }

    fn body(&mut self) -> Result<Payload, FrameError> {
        let kind = Kind::read(self.u8()?).ok_or(FrameError::Kind(self.kind))?;
        Ok(Payload { kind, bytes: self.bytes()? })
    }

    fn text(&mut self) -> Result<String, FrameError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| FrameError::Text(self.kind))
    }

    fn bytes(&mut self) -> Result<Bytes, FrameError> {
        let length = self.u32()? as usize;
        if self.rest.len() < length {
            return Err(FrameError::Shape(self.kind));
        }
        Ok(self.rest.split_to(length))
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.rest.try_get_u8().map_err(|_| FrameError::Shape(self.kind))
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.rest.try_get_u16_le().map_err(|_| FrameError::Shape(self.kind))
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.rest.try_get_u32_le().map_err(|_| FrameError::Shape(self.kind))
    }
}
