//! The text of a response, and the limits of writing it.

use json::JsonTree;

use super::written_objects::{WrittenObjectKey, WrittenObjects};

/// The text of a response with limits.
pub(super) struct ResponseOutput {
    pub(super) text: Vec<u8>,
    /// The maximum size of the response in bytes.
    pub(super) max_bytes: usize,
    /// Whether a limit has been exceeded; then nothing more is written.
    pub(super) is_limit_exceeded: bool,
    /// The number of fields written so far. Other work counts as fields that take as long.
    pub(super) steps: usize,
    max_steps: usize,
    written_objects: WrittenObjects,
}

impl ResponseOutput {
    pub(super) fn new(capacity: usize, max_bytes: usize, max_steps: usize) -> Self {
        Self {
            text: Vec::with_capacity(capacity),
            max_bytes,
            is_limit_exceeded: false,
            steps: 0,
            max_steps,
            written_objects: WrittenObjects::default(),
        }
    }

    /// Whether the response exceeds a limit.
    #[inline]
    pub(super) fn is_full(&mut self) -> bool {
        self.is_limit_exceeded |= self.text.len() > self.max_bytes || self.steps > self.max_steps;
        self.is_limit_exceeded
    }

    /// Discards everything that was written after this length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.text.truncate(length);
        self.written_objects.truncate(length);
    }

    /// Records the object whose text begins at this offset and was written last.
    pub(super) fn record_object(&mut self, key: WrittenObjectKey, start: usize) {
        self.written_objects.add(key, start..self.text.len());
    }

    /// Writes an object that was written before. Returns whether it fits, or `None` if it was not written
    /// before.
    pub(super) fn repeat_object(&mut self, key: &WrittenObjectKey) -> Option<bool> {
        let length = self.written_objects.text_length(key)?;
        self.is_limit_exceeded |= self.text.len() + length > self.max_bytes;
        Some(!self.is_limit_exceeded && self.written_objects.copy_text(key, &mut self.text))
    }

    /// Returns the text as a tree, with the recorded repetitions.
    pub(super) fn into_tree(self) -> JsonTree {
        self.written_objects.into_tree(self.text)
    }
}
