//! Indexes of JSON texts from workers and services, each bounded in proportion to the length of its text.

use bytes::Bytes;
use json::JsonDocument;

/// The maximum size in bytes of the index of a text of this length. Most texts need a fifth of their own
/// length; a text of arrays nested as deeply as possible needs eight times its length.
fn max_index_bytes(length: usize) -> usize {
    const LEAST: usize = 64 << 10;
    LEAST + 3 * length
}

/// Checks that a text is JSON and builds its index within the memory limit.
///
/// # Errors
/// Returns the errors of [`JsonDocument::with_memory_limit`].
pub(crate) fn build_index(text: Bytes) -> Result<JsonDocument, json::JsonError> {
    let most = max_index_bytes(text.len());
    JsonDocument::with_memory_limit(text, most)
}

/// A text of nested arrays, each just long enough to be indexed: from some depth on, its index takes several
/// times its length.
#[cfg(test)]
pub(crate) fn nested_arrays(depth: usize) -> String {
    let item = format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(64), "]".repeat(depth));
    format!("[{}]", vec![item; 200].join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FramePayload;
    use crate::state::fuzz::apply_change_set;

    #[test]
    fn refuses_a_text_whose_index_takes_several_times_its_length() {
        assert!(build_index(nested_arrays(2).into()).is_ok());
        assert!(matches!(build_index(nested_arrays(1000).into()), Err(json::JsonError::IndexTooLarge(_))));
    }

    #[test]
    fn refuses_a_change_set_whose_index_takes_several_times_its_length() {
        assert_eq!(apply_change_set(&format!("[[0,[],{}]]", nested_arrays(2))), Ok(()));
        let refused = apply_change_set(&format!("[[0,[],{}]]", nested_arrays(1000))).unwrap_err();
        assert!(refused.ends_with("the index of this text takes more memory than allowed"), "{refused}");
    }

    #[test]
    fn passed_through_json_is_accepted_even_if_its_index_is_too_large() {
        for (text, is_json) in [(nested_arrays(1000), true), (format!("{}]", nested_arrays(1000)), false)] {
            assert_eq!(FramePayload::decode_json(text.into()).validate().is_ok(), is_json);
        }
    }
}
