//! Indexes of JSON texts that workers and services send, each bounded by the length of its text.

use bytes::Bytes;
use json::Document;

/// The most bytes that the index of a text of this length may take. Most texts need a fifth of their own length; one of
/// arrays within arrays, as many as may be, eight times as much.
fn most_index_bytes(length: usize) -> usize {
    const LEAST: usize = 64 << 10;
    LEAST + 3 * length
}

/// Checks a text and makes its index, which is counted while it is made.
///
/// # Errors
/// Those of [`Document::within`].
pub(crate) fn index(text: Bytes) -> Result<Document, json::Error> {
    let most = most_index_bytes(text.len());
    Document::within(text, most)
}

/// A text of arrays within arrays, each the longest that is not left out of an index: from some depth on its index takes
/// several times its length.
#[cfg(test)]
pub(crate) fn nested(depth: usize) -> String {
    let item = format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(64), "]".repeat(depth));
    format!("[{}]", vec![item; 200].join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Payload;
    use crate::state::fuzz::change_set;

    #[test]
    fn refuses_a_text_whose_index_takes_several_times_its_length() {
        assert!(index(nested(2).into()).is_ok());
        assert!(matches!(index(nested(1000).into()), Err(json::Error::IndexTooLarge(_))));
    }

    #[test]
    fn refuses_a_change_set_whose_index_takes_several_times_its_length() {
        assert_eq!(change_set(&format!("[[0,[],{}]]", nested(2))), Ok(()));
        let refused = change_set(&format!("[[0,[],{}]]", nested(1000))).unwrap_err();
        assert!(refused.ends_with("the index of this takes more memory than there is for it"), "{refused}");
    }

    #[test]
    fn json_that_is_handed_on_stays_json_whatever_its_index_would_take() {
        for (text, is_json) in [(nested(1000), true), (format!("{}]", nested(1000)), false)] {
            assert_eq!(Payload::claimed_json(text.into()).check().is_ok(), is_json);
        }
    }
}
