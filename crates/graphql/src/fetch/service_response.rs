//! The response of a service. Its body is parsed once for all requests that share it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::StatusCode;
use json::JsonDocument;
use services::ProgramResponse;

use super::call_failure::CallFailureReason;

/// A service response. Clones share the same data.
#[derive(Clone, Debug)]
pub(crate) struct ServiceResponse(Arc<ServiceResponseInner>);

#[derive(Debug)]
struct ServiceResponseInner {
    status: StatusCode,
    body: Bytes,
    document: OnceLock<Result<Arc<JsonDocument>, json::JsonError>>,
}

/// Returns the maximum size in bytes of the index of a text. Most texts need a fifth of their length, but
/// nested arrays can take eight times as much, and a client could request many of those at once.
fn max_index_bytes(length: usize) -> usize {
    const MIN_BYTES: usize = 64 << 10;
    MIN_BYTES + 3 * length
}

impl From<ProgramResponse> for ServiceResponse {
    fn from(response: ProgramResponse) -> Self {
        let ProgramResponse { status, body, .. } = response;
        Self(Arc::new(ServiceResponseInner { status, body, document: OnceLock::new() }))
    }
}

impl ServiceResponse {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// Returns the body as JSON, which is checked and indexed on first use, off the serving thread if it is
    /// long or one of many.
    pub(crate) async fn document(&self) -> Result<&Arc<JsonDocument>, CallFailureReason> {
        let body = &self.0.body;
        if body.is_empty() {
            return Err(CallFailureReason::NoBody);
        }
        if self.0.document.get().is_none() {
            offload::move_if_long(body.len()).await;
        }
        let read =
            || JsonDocument::with_memory_limit(body.clone(), max_index_bytes(body.len())).map(Arc::new);
        let is_html = || self.0.body.trim_ascii_start().starts_with(b"<");
        self.0
            .document
            .get_or_init(read)
            .as_ref()
            .map_err(|error| CallFailureReason::NotJson(*error, is_html()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use http::HeaderMap;

    use super::*;
    use crate::fetch::shop_fixture::count_moves;

    fn parse_body(text: String) -> Result<(), CallFailureReason> {
        let answer = ServiceResponse::from(ProgramResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: text.into(),
        });
        answer.document().now_or_never().expect("the future is ready").map(drop)
    }

    /// Returns a list of nested arrays. Each item is just long enough to be indexed.
    fn nested_arrays(depth: usize) -> String {
        let item = format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(64), "]".repeat(depth));
        format!("[{}]", vec![item; 200].join(","))
    }

    #[test]
    fn rejects_a_response_whose_index_is_several_times_its_length() {
        assert!(parse_body(nested_arrays(2)).is_ok());
        assert!(matches!(
            parse_body(nested_arrays(1000)),
            Err(CallFailureReason::NotJson(json::JsonError::IndexTooLarge(_), false))
        ));
    }

    #[tokio::test]
    async fn parses_many_short_responses_of_one_poll_in_the_pool() {
        let parsed = |count: usize| async move {
            let text: Bytes = format!("\"{}\"", "x".repeat(20_000)).into();
            let answer = |_| {
                let body = text.clone();
                ServiceResponse::from(ProgramResponse {
                    status: StatusCode::OK,
                    headers: HeaderMap::new(),
                    body,
                })
            };
            let answers: Vec<ServiceResponse> = (0..count).map(answer).collect();
            join_all(answers.iter().map(ServiceResponse::document)).await.iter().all(Result::is_ok)
        };
        assert_eq!(count_moves(parsed(4)).await, (true, 0));
        assert_eq!(count_moves(parsed(16)).await, (true, 1));
    }
}
