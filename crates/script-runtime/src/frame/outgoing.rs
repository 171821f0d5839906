//! Frames to a worker: the queue of bytes to be written.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::FramePayload;

/// The payload size from which on a payload is queued separately instead of copied.
pub(crate) const LARGE_PAYLOAD: usize = 4096;
/// The size of the tail from which on it is not extended by another frame: a longer one would be copied
/// whenever it grows.
const MAX_TAIL: usize = 64 << 10;

const LOAD: u8 = 1;
const RUN: u8 = 2;
const INSTANCE: u8 = 3;
const STATE: u8 = 4;
const FORGET: u8 = 5;
const DONE: u8 = 6;
const CANCEL: u8 = 7;
const PING: u8 = 8;

/// The bytes to be written to a worker, in order.
#[derive(Debug, Default)]
pub(crate) struct OutgoingBytes {
    parts: VecDeque<Bytes>,
    tail: BytesMut,
    /// The large payloads of the frame that is being written, each with its place in the tail.
    large: Vec<(usize, Bytes)>,
}

/// The description of a run for a worker.
#[derive(Debug)]
pub(crate) struct RunMessage<'a> {
    pub(crate) program: u32,
    pub(crate) service: u16,
    pub(crate) handler: u16,
    pub(crate) is_writer: bool,
    /// The cells, by their indexes in the program, whose initial values are evaluated instead of running a
    /// handler.
    pub(crate) initialises: Option<&'a [u16]>,
    pub(crate) method: u8,
    pub(crate) path: &'a str,
    /// JSON, or empty.
    pub(crate) query: &'a Bytes,
    /// JSON, or empty.
    pub(crate) headers: &'a [u8],
    /// 0: no instance.
    pub(crate) instance: u32,
    pub(crate) cells: &'a [u32],
    pub(crate) version: u64,
    pub(crate) durable: u64,
    pub(crate) body: FramePayload,
}

/// The outcome of a resource call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallReply {
    Ok,
    /// The status is not 2xx; with the headers as JSON, and the message of the error.
    Status(u16, Vec<u8>, String),
    /// The call failed without a response; with the equivalent status.
    Failed(u16, String),
    /// The response goes to the client, bypassing the handler.
    PassedThrough,
    /// A rule forbids the call.
    Refused(u16, String),
}

/// The form in which a cell's value is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StateKind {
    Full,
    Changes,
    Unset,
}

/// The kinds of objects that a worker can discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DiscardKind {
    Cell,
    Instance,
    Program,
}

impl OutgoingBytes {
    pub(crate) fn put_load(&mut self, program: u32, name: &str, folder: &str, descriptor: &str, code: &str) {
        let start = self.begin_frame(LOAD, program);
        for text in [name, folder, descriptor, code] {
            self.put_text(text.as_bytes());
        }
        self.end_frame(start);
    }

    pub(crate) fn put_run(&mut self, number: u32, run: RunMessage<'_>) {
        let start = self.begin_frame(RUN, number);
        self.tail.put_u32_le(run.program);
        self.tail.put_u16_le(run.service);
        self.tail.put_u16_le(run.handler);
        self.tail.put_u8(u8::from(run.is_writer) | u8::from(run.initialises.is_some()) << 1);
        self.tail.put_u8(run.method);
        self.put_text(run.path.as_bytes());
        self.put_shared(run.query.clone());
        self.put_text(run.headers);
        self.tail.put_u32_le(run.instance);
        let cells = run.cells.get(..usize::from(u8::MAX)).unwrap_or(run.cells);
        self.tail.put_u8(u8::try_from(cells.len()).unwrap_or(u8::MAX));
        if !cells.is_empty() {
            self.tail.put_u64_le(run.version);
            self.tail.put_u64_le(run.durable);
            cells.iter().for_each(|cell| self.tail.put_u32_le(*cell));
            let planned = run.initialises.unwrap_or_default();
            planned.iter().take(cells.len()).for_each(|cell| self.tail.put_u16_le(*cell));
        }
        self.put_body(run.body);
        self.end_frame(start);
    }

    pub(crate) fn put_instance(&mut self, instance: u32, captures: Bytes) {
        let start = self.begin_frame(INSTANCE, instance);
        self.put_shared(captures);
        self.end_frame(start);
    }

    pub(crate) fn put_state(&mut self, cell: u32, kind: StateKind, version: u64, text: Bytes) {
        let start = self.begin_frame(STATE, cell);
        self.tail.put_u8(kind as u8);
        self.tail.put_u64_le(version);
        self.put_shared(text);
        self.end_frame(start);
    }

    /// Writes change sets as one JSON array.
    pub(crate) fn put_changes(&mut self, cell: u32, version: u64, texts: Vec<Bytes>) {
        let start = self.begin_frame(STATE, cell);
        self.tail.put_u8(StateKind::Changes as u8);
        self.tail.put_u64_le(version);
        let size = texts.iter().map(|text| text.len() + 1).sum::<usize>() + 1;
        self.tail.put_u32_le(u32::try_from(size).unwrap_or(u32::MAX));
        for (number, text) in texts.into_iter().enumerate() {
            self.tail.put_u8(if number == 0 { b'[' } else { b',' });
            self.put_piece(text);
        }
        self.tail.put_u8(b']');
        self.end_frame(start);
    }

    pub(crate) fn put_discard(&mut self, kind: DiscardKind, number: u32) {
        let start = self.begin_frame(FORGET, 0);
        self.tail.put_u8(kind as u8);
        self.tail.put_u32_le(number);
        self.end_frame(start);
    }

    pub(crate) fn put_call_result(&mut self, run: u32, call: u32, outcome: &CallReply, body: FramePayload) {
        let start = self.begin_frame(DONE, run);
        self.tail.put_u32_le(call);
        let (number, status, headers, message): (u8, u16, &[u8], &str) = match outcome {
            CallReply::Ok => (0, 200, &[], ""),
            CallReply::Status(status, headers, message) => (1, *status, headers, message),
            CallReply::Failed(status, message) => (2, *status, &[], message),
            CallReply::PassedThrough => (3, 0, &[], ""),
            CallReply::Refused(status, message) => (4, *status, &[], message),
        };
        self.tail.put_u8(number);
        self.tail.put_u16_le(status);
        self.put_text(headers);
        self.put_text(message.as_bytes());
        self.put_body(body);
        self.end_frame(start);
    }

    /// Cancels a run, whether it is a reader or a writer: the worker rolls back its writes and sends no
    /// further frames for it.
    pub(crate) fn put_cancel(&mut self, run: u32) {
        let start = self.begin_frame(CANCEL, run);
        self.tail.put_u8(1);
        self.end_frame(start);
    }

    pub(crate) fn put_ping(&mut self, number: u32) {
        let start = self.begin_frame(PING, number);
        self.end_frame(start);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.tail.is_empty()
    }

    /// Fills slices with pending bytes; returns the number of slices.
    pub(crate) fn fill_slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let waiting = self.parts.iter().map(|part| &**part).chain([&*self.tail]);
        let mut filled = 0;
        for (slice, part) in into.iter_mut().zip(waiting.filter(|part| !part.is_empty())) {
            *slice = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    /// Removes bytes that have been written.
    pub(crate) fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.parts.front_mut() {
            if count < first.len() {
                return first.advance(count);
            }
            count -= first.len();
            self.parts.pop_front();
        }
        self.tail.advance(count.min(self.tail.len()));
    }

    /// Begins a frame; returns its start, for [`OutgoingBytes::end_frame`].
    fn begin_frame(&mut self, kind: u8, run: u32) -> usize {
        if self.tail.len() >= MAX_TAIL {
            self.parts.push_back(self.tail.split().freeze());
        }
        let start = self.tail.len();
        self.tail.put_u32_le(0);
        self.tail.put_u8(kind);
        self.tail.put_u32_le(run);
        start
    }

    fn put_text(&mut self, text: &[u8]) {
        self.tail.put_u32_le(length_u32(text));
        self.tail.put_slice(text);
    }

    /// Writes a text that is not copied if it is large.
    fn put_shared(&mut self, text: Bytes) {
        self.tail.put_u32_le(length_u32(&text));
        self.put_piece(text);
    }

    fn put_body(&mut self, body: FramePayload) {
        self.tail.put_u8(body.kind as u8);
        self.put_shared(body.bytes);
    }

    /// Writes a part of a text.
    fn put_piece(&mut self, bytes: Bytes) {
        if bytes.len() < LARGE_PAYLOAD {
            self.tail.put_slice(&bytes);
        } else {
            self.large.push((self.tail.len(), bytes));
        }
    }

    /// Ends a frame.
    fn end_frame(&mut self, start: usize) {
        let large: usize = self.large.iter().map(|(_, bytes)| bytes.len()).sum();
        let size = self.tail.len() - start - 4 + large;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        if let Some(place) = self.tail.get_mut(start..start + 4) {
            place.copy_from_slice(&size.to_le_bytes());
        }
        let mut taken = 0;
        for (place, bytes) in self.large.drain(..) {
            if place > taken {
                self.parts.push_back(self.tail.split_to(place - taken).freeze());
                taken = place;
            }
            self.parts.push_back(bytes);
        }
    }
}

/// Returns the length as `u32`. The limits of bodies and states are far below its maximum.
fn length_u32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
