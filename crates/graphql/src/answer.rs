//! What a service answered: read once, for all who get it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::StatusCode;
use json::Document;
use services::Response;

use crate::reason::Reason;

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

    /// Its body, which should be JSON: checked and indexed by whoever asks first.
    pub(crate) fn document(&self) -> Result<&Arc<Document>, Reason> {
        if self.0.body.is_empty() {
            return Err(Reason::NoBody);
        }
        let read = || Document::new(self.0.body.clone()).map(Arc::new);
        let is_html = || self.0.body.trim_ascii_start().starts_with(b"<");
        self.0.document.get_or_init(read).as_ref().map_err(|error| Reason::NotJson(*error, is_html()))
    }
}
