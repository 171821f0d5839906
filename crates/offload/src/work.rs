//! Estimates of CPU work for [`move_if_long`](crate::move_if_long).
//!
//! The unit is the work on one byte of text: up to ten nanoseconds. A short text may have many values, and a
//! long one few. Values, objects and fields are therefore counted beside the bytes, by the constants below.
//!
//! A request may do many short pieces of work in one poll: the arguments of fifty calls, the responses of
//! sixteen. Each is announced before it is done, so that the request leaves its serving thread when they are
//! long together.

/// The maximum length in bytes of a text that is parsed or written inline on the request's thread, which
/// takes some tenths of a millisecond. Longer texts are processed in jobs
/// ([`OffloadPool::run_paced`](crate::OffloadPool::run_paced)).
pub const SHORT_TEXT: usize = 128 << 10;

/// Selecting, rendering or joining a value, besides the bytes of its text.
pub const VALUE: usize = 32;
/// Visiting an object to collect its key, and sending the key to a service.
pub const OBJECT: usize = 50;
/// Joining an object with an item of a list by a key.
pub const JOIN_BY_KEY: usize = 10;
/// Storing the result of an object.
pub const RESULT: usize = 4;
/// Composing a field of a document for a service, or looking it up in the response.
pub const FIELD: usize = 60;
/// Building the tree of an error that a service returned, for each byte of its text.
pub const ERROR_BYTE: usize = 4;
/// The number of values whose work exceeds [`SHORT_TEXT`], whatever their texts.
pub const LONG_VALUE_COUNT: usize = SHORT_TEXT / VALUE + 1;

/// Returns the sum of estimates, or of the first of them that exceed [`SHORT_TEXT`] together.
#[must_use]
pub fn sum_estimates(works: impl IntoIterator<Item = usize>) -> usize {
    let mut total = 0_usize;
    for work in works {
        total = total.saturating_add(work);
        if total > SHORT_TEXT {
            break;
        }
    }
    total
}

/// Returns the work of reading a JSON text or a URL's query that a client controls, or of writing its values
/// into a request: characters take little time, values and parameters take some tenths of a microsecond each.
/// Only its length is returned for a text of more than [`SHORT_TEXT`] bytes: counting its values would take
/// long, too.
#[must_use]
pub fn estimate_text(text: &[u8]) -> usize {
    /// The length up to which the values are not counted.
    const SHORT: usize = 256;
    const PARAMETER: usize = 20;
    if text.len() <= SHORT {
        return text.len() * PARAMETER / 2;
    }
    if text.len() > SHORT_TEXT {
        return text.len();
    }
    // There are at most as many values as separators.
    let is_separator = |byte: &&u8| matches!(byte, b',' | b'[' | b'{' | b'&');
    text.len() + PARAMETER * text.iter().filter(is_separator).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_to_what_is_long() {
        assert_eq!(sum_estimates([1, 2, 3]), 6);
        assert_eq!(sum_estimates([1, usize::MAX, 3]), usize::MAX);
        assert_eq!(sum_estimates(std::iter::repeat(SHORT_TEXT)), 2 * SHORT_TEXT);
    }

    #[test]
    fn many_values_are_more_work_than_long_texts() {
        assert!(estimate_text("1,".repeat(7_000).as_bytes()) > SHORT_TEXT);
        assert!(estimate_text("x".repeat(14_000).as_bytes()) < SHORT_TEXT / 8);
        assert!(estimate_text("x".repeat(SHORT_TEXT + 1).as_bytes()) > SHORT_TEXT);
    }

    #[test]
    fn does_not_count_the_values_of_long_texts() {
        for length in [SHORT_TEXT, SHORT_TEXT + 1] {
            let counts = estimate_text(",".repeat(length).as_bytes()) > length;
            assert_eq!(counts, length <= SHORT_TEXT, "{length} bytes");
        }
    }
}
