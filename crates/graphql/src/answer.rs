//! What a service answered: read once, for all who get it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::StatusCode;
use json::Document;
use offload::SHORT_TEXT;
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

/// The most bytes that the index of a text of this length may take. Most texts need a fifth of their own length; one of arrays
/// within arrays, as many as may be, needs eight times as much, and a client could ask for many of those at once.
fn most_index_bytes(length: usize) -> usize {
    const LEAST: usize = 64 << 10;
    LEAST + 3 * length
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

    /// Its body, which should be JSON: checked and indexed by whoever asks first. Who asks for a long one leaves the
    /// serving thread.
    pub(crate) async fn document(&self) -> Result<&Arc<Document>, Reason> {
        let body = &self.0.body;
        if body.is_empty() {
            return Err(Reason::NoBody);
        }
        if body.len() > SHORT_TEXT {
            offload::leave().await;
        }
        let read = || Document::within(body.clone(), most_index_bytes(body.len())).map(Arc::new);
        let is_html = || self.0.body.trim_ascii_start().starts_with(b"<");
        self.0.document.get_or_init(read).as_ref().map_err(|error| Reason::NotJson(*error, is_html()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::HeaderMap;

    use super::*;

    fn read(text: String) -> Result<(), Reason> {
        let answer =
            Answer::from(Response { status: StatusCode::OK, headers: HeaderMap::new(), body: text.into() });
        answer.document().now_or_never().expect("it waits for nothing").map(drop)
    }

    /// A list of arrays within arrays, each the longest that is not left out of an index.
    fn nested(depth: usize) -> String {
        let item = format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(64), "]".repeat(depth));
        format!("[{}]", vec![item; 200].join(","))
    }

    #[test]
    fn refuses_an_answer_whose_index_takes_several_times_its_length() {
        assert!(read(nested(2)).is_ok());
        assert!(matches!(read(nested(1000)), Err(Reason::NotJson(json::Error::IndexTooLarge(_), false))));
    }
}
