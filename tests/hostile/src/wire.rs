//! Raw HTTP/1.1 responses, read by a lenient client.

use testkit::with_timeout;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::ending::AttackEnding;

/// Reads until the peer closes or resets the connection.
pub(crate) async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // Bytes before an error count.
    let _ = with_timeout("the end of a connection", stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the ending of a request by the first response of the connection.
pub(crate) fn response_ending(text: &str) -> AttackEnding {
    let Some(status) = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()) else {
        return AttackEnding::Closed;
    };
    let is_problem = text.to_ascii_lowercase().contains("content-type: application/problem+json");
    let code = text.split_once("\"code\":\"").and_then(|(_, rest)| rest.split_once('"'));
    match code {
        Some((code, _)) if is_problem => AttackEnding::Problem(status, code.to_owned().into()),
        _ => AttackEnding::Answer(status),
    }
}

/// Returns the number of responses on a connection.
pub(crate) fn count_responses(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_ending_off_the_first_answer() {
        let problem =
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n\r\n{\"code\":\"x\"}";
        assert_eq!(response_ending(problem), AttackEnding::problem(400, "x"));
        assert_eq!(
            response_ending("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n"),
            AttackEnding::Answer(200)
        );
        assert_eq!(response_ending("what?"), AttackEnding::Closed);
        assert_eq!(count_responses("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n"), 2);
    }
}
