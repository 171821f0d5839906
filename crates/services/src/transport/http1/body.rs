//! The body of an answer, as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::request::Outgoing;
use super::{Connection, Endpoint, Parts};
use crate::body::Error;
use crate::http1::{Decoder, Part};

/// One that was not there at once, with the connection that it arrives on.
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
