//! The body of a response, as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::request::OutgoingRequest;
use super::{ClientHttp1Connection, ClientHttp1Parts, RequestEndpoint};
use crate::body::BodyError;
use crate::protocol::http1::BodyDecoder;

/// A body that was not available at once, with its connection.
pub(super) struct ArrivingBody {
    decoder: BodyDecoder,
    /// `None` once the response is complete, or has failed.
    open_exchange: Option<OpenExchange>,
}

struct OpenExchange {
    connection: ClientHttp1Connection,
    outgoing: OutgoingRequest,
    /// The pool that the connection returns to, if it can be reused.
    pool_endpoint: Option<RequestEndpoint>,
}

impl ArrivingBody {
    pub(super) fn new(
        decoder: BodyDecoder,
        connection: ClientHttp1Connection,
        outgoing: OutgoingRequest,
        home: Option<RequestEndpoint>,
    ) -> Self {
        Self { decoder, open_exchange: Some(OpenExchange { connection, outgoing, pool_endpoint: home }) }
    }

    fn poll_next_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        let Some(open) = &mut self.open_exchange else { return Poll::Ready(Ok(None)) };
        let ClientHttp1Parts { stream, input } = &mut *open.connection.0;
        open.outgoing.write_available(stream, context)?;
        self.decoder.poll_frame(input, stream, context)
    }

    /// Returns the connection to the pool once the response is complete.
    fn release_connection(&mut self) {
        let Some(OpenExchange { mut connection, outgoing, pool_endpoint: home }) = self.open_exchange.take()
        else {
            return;
        };
        match home {
            _ if !outgoing.is_done() => {}
            Some(home) => connection.return_to_pool(home),
            None => connection.mark_idle(),
        }
    }
}

impl http_body::Body for ArrivingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = ready!(self.poll_next_frame(context));
        if next.is_err() {
            self.open_exchange = None;
        } else if self.decoder == BodyDecoder::Done {
            self.release_connection();
        }
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.decoder == BodyDecoder::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.size_hint()
    }
}
