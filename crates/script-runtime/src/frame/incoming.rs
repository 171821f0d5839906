//! Frames from a worker: splitting the byte stream into frames, and strict parsing.

use bytes::{Buf, Bytes, BytesMut};
use offload::SHORT_TEXT;

use super::{FramePayload, MAX_FRAME_LENGTH, PayloadKind};

/// The length of the frame type and the run number.
const HEADER_LENGTH: usize = 5;
/// Buffer space that is reserved for an incomplete frame, unless that much has already arrived.
const READ_RESERVE: usize = 64 << 10;
/// The minimum length of a piece of a long frame, except for the last one.
const MIN_PIECE: usize = 32 << 10;
/// The type of a LOG frame.
const LOG_FRAME: u8 = 73;
/// The number of bytes of a long LOG frame that are logged.
const MAX_LOGGED: usize = 8 << 10;
/// The maximum length of an error's message; the rest is dropped.
const MAX_MESSAGE: usize = 8 << 10;
/// The maximum length of a stack. The beginning of a longer one, which repeats the message, is dropped.
const MAX_STACK: usize = 16 << 10;

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
pub(crate) enum WorkerMessage {
    Hello {
        worker: u32,
        engine: String,
    },
    Ready,
    Broken {
        message: String,
        stack: String,
    },
    Call(ResourceCall),
    Answer(HandlerAnswer),
    Commit {
        changes: Bytes,
    },
    Declare(DeclareMessage),
    End {
        answer: Option<HandlerAnswer>,
        changes: Option<Bytes>,
        cpu_micros: u32,
    },
    Fail(HandlerFailure),
    Log {
        level: u8,
        text: String,
    },
    /// The handler responded a second time, at this position.
    RespondedTwice {
        stack: String,
    },
    Pong,
    Stuck {
        millis: u32,
    },
    RemoveInstance,
    /// Code of this handler damaged the worker, which ends, after its run had ended. The frame's run is the
    /// program; 0, if the cause is unknown.
    Damaged {
        handler: u16,
    },
    /// A frame that takes long to parse.
    Long(LongFrame),
}

/// A complete frame of more than [`SHORT_TEXT`] bytes about a run, still in the pieces that arrived: joining
/// and parsing them takes long, so it is left to the run, off the serving thread.
#[derive(Clone, Debug)]
pub(crate) struct LongFrame {
    kind: u8,
    length: usize,
    pieces: Vec<Bytes>,
}

/// A resource call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceCall {
    pub(crate) number: u32,
    pub(crate) site: u32,
    /// Whether the response goes to the client, bypassing the handler.
    pub(crate) passes_through: bool,
    /// Whether no code of the handler reads the response, which becomes part of its own unchanged.
    pub(crate) is_unread: bool,
    pub(crate) method: u8,
    pub(crate) url: String,
    /// Parameters with their types, as a JSON object.
    pub(crate) query: Bytes,
    pub(crate) body: FramePayload,
}

/// A handler's response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerAnswer {
    /// 0: derived from the kind of the body.
    pub(crate) status: u16,
    /// A JSON object, or empty.
    pub(crate) headers: Bytes,
    pub(crate) body: FramePayload,
}

/// The declaration of a nested resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclareMessage {
    pub(crate) call: u32,
    pub(crate) site: u32,
    pub(crate) resource: u16,
    pub(crate) path: String,
    pub(crate) captures: Bytes,
    pub(crate) initial: Bytes,
}

/// The failure of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandlerFailure {
    pub(crate) kind: u8,
    pub(crate) site: u32,
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) stack: String,
}

impl HandlerFailure {
    /// Whether the handler damaged its worker, which ends.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind == 7
    }
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    /// Bytes that do not form a complete frame yet.
    pub(crate) buffer: BytesMut,
    incomplete: Option<IncompleteFrame>,
}

/// A long frame that is arriving.
#[derive(Debug)]
struct IncompleteFrame {
    run: u32,
    missing: usize,
    frame: LongFrame,
}

impl FrameReader {
    /// Returns the next complete frame: its run and its message.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(u32, WorkerMessage)>, FrameError> {
        if let Some(long) = self.incomplete.take() {
            return Ok(self.continue_long_frame(long));
        }
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEADER_LENGTH..=MAX_FRAME_LENGTH).contains(&length) {
            return Err(FrameError::Length(length));
        }
        if length > SHORT_TEXT && self.buffer.len() >= 4 + HEADER_LENGTH {
            let kind = self.buffer.get(4).copied().unwrap_or_default();
            if is_run_frame(kind) {
                self.buffer.advance(5);
                let (run, length) = (self.buffer.get_u32_le(), length - HEADER_LENGTH);
                let frame = LongFrame { kind, length, pieces: Vec::new() };
                return Ok(self.continue_long_frame(IncompleteFrame { run, missing: length, frame }));
            }
        }
        let missing = (length + 4).saturating_sub(self.buffer.len());
        if missing > 0 {
            // The length is untrusted: the buffer grows only with the bytes that arrive.
            self.buffer.reserve(missing.min(self.buffer.len().max(READ_RESERVE)));
            return Ok(None);
        }
        self.buffer.advance(4);
        let mut frame = self.buffer.split_to(length).freeze();
        let (kind, run) = (frame.get_u8(), frame.get_u32_le());
        Ok(Some((run, FrameFields { kind, rest: frame }.parse()?)))
    }

    /// Moves the bytes that have arrived to a long frame, and returns it once it is complete. They are never
    /// copied, as they would be if one buffer grew with them.
    fn continue_long_frame(&mut self, mut long: IncompleteFrame) -> Option<(u32, WorkerMessage)> {
        let here = long.missing.min(self.buffer.len());
        if here == long.missing || here >= MIN_PIECE {
            long.frame.pieces.push(self.buffer.split_to(here).freeze());
            long.missing -= here;
        }
        if long.missing == 0 {
            return Some((long.run, WorkerMessage::Long(long.frame)));
        }
        self.incomplete = Some(long);
        None
    }
}

/// Whether frames of this type are about a run, or are log lines.
fn is_run_frame(kind: u8) -> bool {
    matches!(kind, 67..=LOG_FRAME | 76 | 77)
}

impl Eq for LongFrame {}

impl PartialEq for LongFrame {
    fn eq(&self, other: &Self) -> bool {
        // The pieces depend on how the frame arrived.
        let bytes = |frame: &'_ Self| frame.pieces.iter().flatten().copied().collect::<Vec<u8>>();
        self.kind == other.kind && bytes(self) == bytes(other)
    }
}

impl LongFrame {
    /// Returns the length of its payload in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    #[cfg(test)]
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Parses the frame, which takes long.
    ///
    /// # Errors
    /// The errors of a short frame.
    pub(crate) fn parse(self) -> Result<WorkerMessage, FrameError> {
        let Self { kind, length, pieces } = self;
        let mut text = Vec::with_capacity(length);
        // Each piece is freed once it is copied.
        pieces.into_iter().for_each(|piece| text.extend_from_slice(&piece));
        FrameFields { kind, rest: text.into() }.parse()
    }

    /// Returns the level and the beginning of the text of a log line; `None` for other frames.
    pub(crate) fn log_line(&self) -> Option<(u8, String)> {
        let first = self.pieces.first().filter(|_| self.kind == LOG_FRAME)?;
        let (level, text) = (first.first()?, first.get(5..)?);
        let text = text.get(..MAX_LOGGED).unwrap_or(text);
        Some((*level, String::from_utf8_lossy(text).into_owned()))
    }
}

/// Returns the beginning of a text.
fn truncate_text(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

/// Returns the end of a text.
fn keep_tail(text: String, most: usize) -> String {
    match text.len().checked_sub(most) {
        None => text,
        Some(start) => text.get(text.ceil_char_boundary(start)..).unwrap_or_default().to_owned(),
    }
}

/// The fields of a frame that are still to be parsed.
struct FrameFields {
    kind: u8,
    rest: Bytes,
}

impl FrameFields {
    /// Parses all fields.
    fn parse(mut self) -> Result<WorkerMessage, FrameError> {
        let from = self.parse_message()?;
        if self.rest.is_empty() { Ok(from) } else { Err(FrameError::Shape(self.kind)) }
    }

    fn parse_message(&mut self) -> Result<WorkerMessage, FrameError> {
        Ok(match self.kind {
            64 => WorkerMessage::Hello { worker: self.read_u32()?, engine: self.parse_text()? },
            65 => WorkerMessage::Ready,
            66 => WorkerMessage::Broken { message: self.parse_text()?, stack: self.parse_text()? },
            67 => WorkerMessage::Call(self.parse_call()?),
            68 => WorkerMessage::Answer(self.parse_answer()?),
            69 => WorkerMessage::Commit { changes: self.parse_bytes()? },
            70 => WorkerMessage::Declare(DeclareMessage {
                call: self.read_u32()?,
                site: self.read_u32()?,
                resource: self.read_u16()?,
                path: self.parse_text()?,
                captures: self.parse_bytes()?,
                initial: self.parse_bytes()?,
            }),
            71 => {
                let flags = self.read_u8()?;
                let answer = (flags & 1 != 0).then(|| self.parse_answer()).transpose()?;
                let changes = (flags & 2 != 0).then(|| self.parse_bytes()).transpose()?;
                WorkerMessage::End { answer, changes, cpu_micros: self.read_u32()? }
            }
            72 => WorkerMessage::Fail(HandlerFailure {
                kind: self.read_u8()?,
                site: self.read_u32()?,
                status: self.read_u16()?,
                message: truncate_text(self.parse_text()?, MAX_MESSAGE),
                stack: keep_tail(self.parse_text()?, MAX_STACK),
            }),
            LOG_FRAME => WorkerMessage::Log { level: self.read_u8()?, text: self.parse_text()? },
            74 => WorkerMessage::Pong,
            75 => WorkerMessage::Stuck { millis: self.read_u32()? },
            76 => WorkerMessage::RemoveInstance,
            77 => WorkerMessage::RespondedTwice { stack: keep_tail(self.parse_text()?, MAX_STACK) },
            78 => WorkerMessage::Damaged { handler: self.read_u16()? },
            kind => return Err(FrameError::Type(kind)),
        })
    }

    fn parse_call(&mut self) -> Result<ResourceCall, FrameError> {
        let (number, site, flags) = (self.read_u32()?, self.read_u32()?, self.read_u8()?);
        Ok(ResourceCall {
            number,
            site,
            passes_through: flags & 1 != 0,
            is_unread: flags & 2 != 0,
            method: self.read_u8()?,
            url: self.parse_text()?,
            query: self.parse_bytes()?,
            body: self.parse_body()?,
        })
    }

    fn parse_answer(&mut self) -> Result<HandlerAnswer, FrameError> {
        Ok(HandlerAnswer { status: self.read_u16()?, headers: self.parse_bytes()?, body: self.parse_body()? })
    }

    fn parse_body(&mut self) -> Result<FramePayload, FrameError> {
        let kind = PayloadKind::from_number(self.read_u8()?).ok_or(FrameError::Kind(self.kind))?;
        Ok(FramePayload { kind, bytes: self.parse_bytes()? })
    }

    fn parse_text(&mut self) -> Result<String, FrameError> {
        String::from_utf8(self.parse_bytes()?.into()).map_err(|_| FrameError::Text(self.kind))
    }

    fn parse_bytes(&mut self) -> Result<Bytes, FrameError> {
        let length = self.read_u32()? as usize;
        if self.rest.len() < length {
            return Err(FrameError::Shape(self.kind));
        }
        Ok(self.rest.split_to(length))
    }

    fn read_u8(&mut self) -> Result<u8, FrameError> {
        self.rest.try_get_u8().map_err(|_| FrameError::Shape(self.kind))
    }

    fn read_u16(&mut self) -> Result<u16, FrameError> {
        self.rest.try_get_u16_le().map_err(|_| FrameError::Shape(self.kind))
    }

    fn read_u32(&mut self) -> Result<u32, FrameError> {
        self.rest.try_get_u32_le().map_err(|_| FrameError::Shape(self.kind))
    }
}
