//! Frames from a worker: cut out of what was read, and read strictly.

use bytes::{Buf, Bytes, BytesMut};

use super::{Kind, LONGEST, Payload};

/// Type and run.
const HEAD: usize = 5;
/// Room that is made for the rest of a frame, unless as much of it has come already.
const ROOM: usize = 64 << 10;

/// Why what came is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes is none that a worker may send")]
    Length(usize),
    #[error("there are no frames of type {0} from a worker")]
    Type(u8),
    #[error("a frame of type {0} ends before it is complete, or goes on behind its end")]
    Shape(u8),
    #[error("a frame of type {0} has text that is not UTF-8")]
    Text(u8),
    #[error("a frame of type {0} has a body of a kind that there is not")]
    Kind(u8),
}

/// What a worker says, of the run or program that stands beside it.
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
    /// The handler responded a second time, there.
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
    /// The answer goes to the client without the handler.
    pub(crate) passes: bool,
    /// No code of the handler's sees the answer, which goes into its own as it is.
    pub(crate) is_unread: bool,
    pub(crate) method: u8,
    pub(crate) url: String,
    /// Parameters with their types, as a JSON object.
    pub(crate) query: Bytes,
    pub(crate) body: Payload,
}

/// What a handler answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// 0: by the kind of its body.
    pub(crate) status: u16,
    /// A JSON object, or nothing.
    pub(crate) headers: Bytes,
    pub(crate) body: Payload,
}

/// A nested resource comes into being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declare {
    pub(crate) call: u32,
    pub(crate) site: u32,
    pub(crate) resource: u16,
    pub(crate) path: String,
    pub(crate) captures: Bytes,
    pub(crate) initial: Bytes,
}

/// A handler did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fail {
    pub(crate) kind: u8,
    pub(crate) site: u32,
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) stack: String,
}

/// Cuts frames out of what was read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// What was read and is no whole frame yet.
    pub(crate) buffer: BytesMut,
}

impl Reader {
    /// The next frame, if all of it is there: its run, and what it says.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, From)>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEAD..=LONGEST).contains(&length) {
            return Err(FrameError::Length(length));
        }
        let missing = (length + 4).saturating_sub(self.buffer.len());
        if missing > 0 {
            // A length is no more than a promise: the buffer grows with what comes.
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

/// What of a frame is still to be read.
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
