//! The body of a response, as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::request::Outgoing;
use super::{Connection, Endpoint, Parts};
use crate::body::Error;
use crate::http1::Decoder;

/// A body that was not available at once, with its connection.
pub(super) struct Arriving {
    decoder: Decoder,
    /// `None` once the response is complete, or has failed.
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    outgoing: Outgoing,
    /// The pool that the connection returns to, if it can be reused.
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

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        let Some(open) = &mut self.open else { return Poll::Ready(Ok(None)) };
        let Parts { stream, input } = &mut *open.connection.0;
        open.outgoing.go_on(stream, context)?;
        self.decoder.poll_frame(input, stream, context)
    }

    /// Returns the connection to the pool once the response is complete.
    fn finish(&mut self) {
        let Some(Open { mut connection, outgoing, home }) = self.open.take() else { return };
        match home {
            _ if !outgoing.is_done() => {}
            Some(home) => connection.keep(home),
            None => connection.rest(),
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
        let next = ready!(self.poll_next(context));
        if next.is_err() {
            self.open = None;
        } else if self.decoder == Decoder::Done {
            self.finish();
        }
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.decoder == Decoder::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.size_hint()
    }
}
