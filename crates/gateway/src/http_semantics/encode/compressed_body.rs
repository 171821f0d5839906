//! A body that is compressed as it arrives.
//!
//! Input is never held back: as soon as the body is pending, everything is flushed. No thread computes for
//! long either: the task yields after each turn, and before the first turn of a long text.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use offload::polls::{self, PollSite};
use services::StreamedServiceBody;
use services::body::BodyError;

use super::coding::ContentEncoder;
use crate::config::ContentCodingKind;
use crate::limits::client_limiter::UnsentPermit;

/// The input that is compressed before the output is checked.
const INPUT_STEP: usize = 16 << 10;
/// The output that is worth sending.
const MIN_OUTPUT: usize = 16 << 10;

/// A compressed body.
pub(super) struct CompressedBody {
    state: CompressionState,
    /// The first frame, if it was polled before.
    first_frame: Option<Result<Frame<Bytes>, BodyError>>,
    body: StreamedServiceBody,
    /// Input that is still to be compressed.
    pending_input: Bytes,
    /// The input compressed in this turn, and the input after which the turn ends.
    consumed_in_turn: usize,
    yield_interval: usize,
    /// Whether some input may not have reached the output.
    has_unflushed_input: bool,
    /// The reservation for the encoder's memory.
    _permit: Option<UnsentPermit>,
}

enum CompressionState {
    /// Not yet begun: a body that isn't read needs no encoder.
    New(ContentCodingKind, Option<u64>),
    Active(ContentEncoder),
    /// The trailers, after the end of the data.
    Trailers(Frame<Bytes>),
    Done,
}

impl CompressedBody {
    /// Compresses a body of this length, if known. A long body begins with a yield, since the same poll may
    /// have produced it, which can take as long as a turn.
    pub(super) fn new(
        coding: ContentCodingKind,
        size: Option<u64>,
        first_frame: Option<Result<Frame<Bytes>, BodyError>>,
        body: StreamedServiceBody,
        permit: Option<UnsentPermit>,
    ) -> Self {
        let state = CompressionState::New(coding, size);
        let yield_interval = coding.yield_interval();
        let consumed_in_turn =
            if size.is_some_and(|size| size > yield_interval as u64) { yield_interval } else { 0 };
        Self {
            state,
            first_frame,
            body,
            pending_input: Bytes::new(),
            consumed_in_turn,
            yield_interval,
            has_unflushed_input: false,
            _permit: permit,
        }
    }

    fn encoder(&mut self) -> io::Result<&mut ContentEncoder> {
        if let CompressionState::New(coding, size) = self.state {
            self.state = CompressionState::Active(ContentEncoder::new(coding, size)?);
        }
        match &mut self.state {
            CompressionState::Active(encoder) => Ok(encoder),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Compresses some of the input, at most the rest of the turn, and returns output that is worth sending.
    fn compress(&mut self) -> io::Result<Option<Bytes>> {
        let mut step = std::mem::take(&mut self.pending_input);
        let rest = self.yield_interval.saturating_sub(self.consumed_in_turn);
        self.pending_input = step.split_off(step.len().min(INPUT_STEP).min(rest));
        self.consumed_in_turn += step.len();
        self.has_unflushed_input = true;
        let encoder = self.encoder()?;
        encoder.write(&step)?;
        let out = encoder.output();
        Ok((out.len() >= MIN_OUTPUT).then(|| std::mem::take(out).into()))
    }

    fn flush(&mut self) -> io::Result<Bytes> {
        self.has_unflushed_input = false;
        let encoder = self.encoder()?;
        encoder.flush()?;
        Ok(std::mem::take(encoder.output()).into())
    }

    /// Ends the encoding, and keeps the trailers for later.
    fn finish(&mut self, trailers: Option<Frame<Bytes>>) -> io::Result<Bytes> {
        self.encoder()?;
        let after = trailers.map_or(CompressionState::Done, CompressionState::Trailers);
        match std::mem::replace(&mut self.state, after) {
            CompressionState::Active(encoder) => Ok(encoder.finish()?.into()),
            _ => Ok(Bytes::new()),
        }
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        polls::enter_site(PollSite::Body);
        match std::mem::replace(&mut self.state, CompressionState::Done) {
            CompressionState::Trailers(trailers) => return Poll::Ready(Some(Ok(trailers))),
            CompressionState::Done => return Poll::Ready(None),
            open => self.state = open,
        }
        loop {
            if self.consumed_in_turn >= self.yield_interval {
                self.consumed_in_turn = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.pending_input.has_remaining() {
                match self.compress()? {
                    Some(out) => return data_frame(out),
                    None => continue,
                }
            }
            let polled = match self.first_frame.take() {
                Some(first) => Poll::Ready(Some(first)),
                None => Pin::new(&mut self.body).poll_frame(context),
            };
            match polled {
                Poll::Pending if self.has_unflushed_input => return data_frame(self.flush()?),
                Poll::Pending => {
                    self.consumed_in_turn = 0;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(error))) => {
                    self.state = CompressionState::Done;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => self.pending_input = piece,
                    Err(trailers) => return data_frame(self.finish(Some(trailers))?),
                },
                Poll::Ready(None) => return data_frame(self.finish(None)?),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, CompressionState::Done)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn data_frame(data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    Poll::Ready(Some(Ok(Frame::data(data))))
}
