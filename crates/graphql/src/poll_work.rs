//! Estimates of work for [`offload::leave_for`], which counts ten nanoseconds as one byte.
//!
//! A request may do many short pieces of work in one poll: the arguments of fifty calls, the responses of
//! sixteen. Each is announced before it is done, so that the request leaves its serving thread when they are
//! long together.

use std::time::Duration;

/// Visiting an object to collect its key, and sending the key to a service.
pub(crate) const OBJECT: usize = 50;
/// Joining an object with an item of a list by a key.
pub(crate) const JOINED: usize = 10;
/// Storing the result of an object.
pub(crate) const RESULT: usize = 4;
/// Composing a field of a document for a service, or looking it up in the response.
pub(crate) const FIELD: usize = 60;
/// Building the tree of an error that a service returned, per byte of its text.
pub(crate) const ERROR_BYTE: usize = 4;

/// The work of reading a JSON text or a URL's query that a client controls, or of writing its values into a
/// request: characters take little time, values and parameters take some tenths of a microsecond each.
pub(crate) fn of_text(text: &[u8]) -> usize {
    /// The length up to which the values are not counted.
    const SHORT: usize = 256;
    const VALUE: usize = 20;
    if text.len() <= SHORT {
        return text.len() * VALUE / 2;
    }
    // There are at most as many values as separators.
    let is_separator = |byte: &&u8| matches!(byte, b',' | b'[' | b'{' | b'&');
    text.len() + VALUE * text.iter().filter(is_separator).count()
}

/// The work of a task with this estimated CPU time.
pub(crate) fn of_time(time: Duration) -> usize {
    usize::try_from(time.as_nanos() / 10).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use offload::SHORT_TEXT;

    use super::*;

    #[test]
    fn many_values_are_more_work_than_long_texts() {
        assert!(of_text("1,".repeat(7_000).as_bytes()) > SHORT_TEXT);
        assert!(of_text("x".repeat(14_000).as_bytes()) < SHORT_TEXT / 8);
        assert!(of_text("x".repeat(SHORT_TEXT + 1).as_bytes()) > SHORT_TEXT);
    }

    #[test]
    fn a_millisecond_is_a_hundred_thousand_bytes() {
        assert_eq!(of_time(Duration::from_millis(1)), 100_000);
    }
}
