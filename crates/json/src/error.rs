//! The errors of texts and pointers.

/// The maximum nesting depth.
pub const DEPTH: usize = 1024;

/// The reason why a text or a pointer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON, or incomplete.
    #[error("byte {0}: this is not JSON")]
    NotJson(usize),
    /// The text is nested deeper than [`DEPTH`].
    #[error("byte {0}: this is nested more than {DEPTH} levels deep")]
    TooDeep(usize),
    /// The text has 4 GiB or more.
    #[error("the text has 4 GiB or more")]
    TooLong,
    /// The index would exceed its limit; see
    /// [`JsonDocument::with_memory_limit`](crate::JsonDocument::with_memory_limit).
    #[error("byte {0}: the index of this text takes more memory than allowed")]
    IndexTooLarge(usize),
    /// Not a JSON Pointer: it must be empty or begin with `/`, and `~` must be followed by 0 or 1.
    #[error("not a JSON Pointer: it must be empty or begin with `/`, and `~` be followed by 0 or 1")]
    NotPointer,
}
