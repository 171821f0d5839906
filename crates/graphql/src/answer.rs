//! What a service answered: read once, for all who get it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::StatusCode;
use json::Document;
use offload::SHORT_TEXT;
use services::Response;

use crate::reason::Reason;

/// The bytes that an index may take beside as many as the text has: only texts that are nested deeply everywhere need more.
const INDEX: usize = 16 << 10;

/// An answer. Clones are of the same one.
#[derive(Clone, Debug)]
pub(crate) struct Answer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    body: Bytes,
    document: OnceLock<Result<Arc<Document>, json::Error>>,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        let Response { status, body, .. } = response;
        Self(Arc::new(Inner { status, body, document: OnceLock::new() }))
    }
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// Its body, which should be JSON: checked and indexed by whoever asks first. Its index takes no more than the body
    /// itself. Who asks for a long one leaves the serving thread.
    pub(crate) async fn document(&self) -> Result<&Arc<Document>, Reason> {
        let body = &self.0.body;
        if body.is_empty() {
            return Err(Reason::NoBody);
        }
        if body.len() > SHORT_TEXT {
            offload::leave().await;
        }
        let read = || Document::within(body.clone(), body.len() + INDEX).map(Arc::new);
        let is_html = || self.0.body.trim_ascii_start().starts_with(b"<");
        self.0.document.get_or_init(read).as_ref().map_err(|error| Reason::NotJson(*error, is_html()))
    }
}
