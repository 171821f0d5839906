//! A request as it is sent to an endpoint, with support for retries.
//!
//! A buffered body can be sent again. A streamed body can be sent again until its first bytes are read. While
//! it streams, [`StreamedUpload`] tracks its progress.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::body::{BodyError, StreamedServiceBody, full};
use crate::headers::strip_head_duplicates;
use crate::path::PathError;
use crate::transport::TargetOrigin;
use crate::transport::upgrade::UpgradeOffer;

/// The delay by a client from which on a failure does not count against the endpoint: the service's own
/// timeout for reads or writes may have caused it.
pub(super) const CLIENT_DELAY: Duration = Duration::from_secs(1);

/// A request, not yet bound to a target.
pub(super) struct RequestMessage {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    /// The value of `Host`, if it differs from the target's own name.
    pub(super) host: Option<Authority>,
    pub(super) headers: HeaderMap,
    pub(super) payload: RequestPayload,
    /// The protocol upgrade that the request offers (RFC 9110, section 7.8).
    pub(super) upgrade: Option<UpgradeOffer>,
}

/// The body of a request.
pub(super) enum RequestPayload {
    Buffered(Bytes),
    Stream(Arc<StreamedUpload>),
}

/// A body that streams from a client to a service.
pub(super) struct StreamedUpload {
    hint: SizeHint,
    started: Instant,
    state: Mutex<UploadProgress>,
}

/// The progress of an upload.
struct UploadProgress {
    /// The body, until its first read.
    unread_body: Option<StreamedServiceBody>,
    /// The time of the last read, or of the creation.
    last_progress: Instant,
    /// The time since which the service is waiting for the client; `None` if the client is waiting for the
    /// service.
    awaited_since: Option<Instant>,
    /// The total time that the service has waited for the parts that have arrived.
    total_wait: Duration,
    end: Option<UploadEnd>,
}

/// The end of an upload.
#[derive(Clone, Copy)]
pub(super) enum UploadEnd {
    /// The body was read completely, or the service stopped reading it.
    Done(Instant),
    /// The client aborted it: subsequent errors are not the service's fault.
    Broken,
}

/// A snapshot of an upload's progress.
pub(super) struct UploadSnapshot {
    pub(super) last_progress: Instant,
    /// Whether the service is waiting for the client, and not the client for the service.
    pub(super) is_awaited: bool,
    pub(super) end: Option<UploadEnd>,
}

impl RequestMessage {
    /// Builds the request for one target. With `keep`, it can be built again for a retry.
    pub(super) fn build_request(
        &mut self,
        origin: &TargetOrigin,
        keep: bool,
    ) -> Result<http::Request<StreamedServiceBody>, PathError> {
        let body = match &mut self.payload {
            RequestPayload::Buffered(bytes) if keep => full(bytes.clone()),
            RequestPayload::Buffered(bytes) => full(std::mem::take(bytes)),
            RequestPayload::Stream(upload) => {
                let is_sized = upload.hint.exact().is_some();
                let head = (!is_sized).then(|| self.headers.keys().cloned().collect());
                SendingBody { upload: Arc::clone(upload), body: None, header_names: head }.boxed_unsync()
            }
        };
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() =
            origin.build_uri(self.path.clone(), self.host.as_ref()).map_err(|_| PathError::Invalid)?;
        *request.headers_mut() = if keep { self.headers.clone() } else { std::mem::take(&mut self.headers) };
        Ok(request)
    }
}

impl RequestPayload {
    /// Creates the payload from the body of a client's own request.
    pub(super) fn from_body(body: StreamedServiceBody) -> Self {
        if body.is_end_stream() {
            return Self::Buffered(Bytes::new());
        }
        let hint = body.size_hint();
        let begun = Instant::now();
        let progress = UploadProgress {
            unread_body: Some(body),
            last_progress: begun,
            awaited_since: None,
            total_wait: Duration::ZERO,
            end: None,
        };
        Self::Stream(Arc::new(StreamedUpload { hint, started: begun, state: Mutex::new(progress) }))
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Buffered(bytes) if bytes.is_empty())
    }

    pub(super) fn upload(&self) -> Option<&Arc<StreamedUpload>> {
        match self {
            Self::Buffered(_) => None,
            Self::Stream(upload) => Some(upload),
        }
    }

    /// Whether the complete body can still be sent.
    pub(super) fn is_resendable(&self) -> bool {
        self.upload().is_none_or(|upload| upload.lock().unread_body.is_some())
    }
}

impl StreamedUpload {
    pub(super) fn snapshot(&self) -> UploadSnapshot {
        let state = self.lock();
        UploadSnapshot {
            last_progress: state.last_progress,
            is_awaited: state.awaited_since.is_some(),
            end: state.end,
        }
    }

    /// Whether the client may have caused an error of the transport: it aborted the upload, or the service
    /// waited for the rest of an upload that takes long. This remains so after the transport has dropped the
    /// body.
    pub(super) fn is_client_fault(&self) -> bool {
        let UploadSnapshot { is_awaited: awaited, end, .. } = self.snapshot();
        matches!(end, Some(UploadEnd::Broken)) || awaited && self.started.elapsed() >= CLIENT_DELAY
    }

    /// Whether the client may have caused an error response: it aborted the upload, or the service waits for
    /// its next part and has waited long for this part, or for all parts together during most of the
    /// exchange.
    pub(super) fn is_interrupted(&self) -> bool {
        let state = self.lock();
        if matches!(state.end, Some(UploadEnd::Broken)) {
            return true;
        }
        let Some(since) = state.awaited_since else { return false };
        let pause = since.elapsed();
        let waited = state.total_wait + pause;
        pause >= CLIENT_DELAY || waited >= CLIENT_DELAY && waited * 2 > self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, UploadProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body that is passed to the transport. Takes the client's body on the first read.
struct SendingBody {
    upload: Arc<StreamedUpload>,
    body: Option<StreamedServiceBody>,
    /// The header names, which must not occur again as trailers. `None` if the length is known: such a body
    /// has no trailers over HTTP/1.1, so ordinary uploads need no list of names.
    header_names: Option<Vec<HeaderName>>,
}

impl http_body::Body for SendingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.body.is_none() {
            this.body = this.upload.lock().unread_body.take();
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(context);
        let over = body.is_end_stream();
        let mut state = this.upload.lock();
        if polled.is_pending() {
            state.awaited_since.get_or_insert_with(Instant::now);
        }
        let mut frame = ready!(polled);
        if let Some(trailers) = frame.as_mut().and_then(|frame| frame.as_mut().ok()?.trailers_mut()) {
            match &this.header_names {
                Some(head) => strip_head_duplicates(trailers, head),
                None => trailers.clear(),
            }
        }
        let now = Instant::now();
        state.last_progress = now;
        if let Some(since) = state.awaited_since.take() {
            state.total_wait += now - since;
        }
        state.end = match &frame {
            Some(Err(_)) => Some(UploadEnd::Broken),
            Some(Ok(_)) if !over => None,
            _ => Some(UploadEnd::Done(now)),
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Empty bodies are never sent through this type.
        self.body.as_ref().is_some_and(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| self.upload.hint, |body| body.size_hint())
    }
}

impl Drop for SendingBody {
    fn drop(&mut self) {
        if self.body.is_some() {
            let mut state = self.upload.lock();
            state.end = state.end.or(Some(UploadEnd::Done(Instant::now())));
        }
    }
}
