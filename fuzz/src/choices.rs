//! The choices of a generator, derived from a fuzzer's bytes.

use arbitrary::Unstructured;

/// Choices derived from bytes. When the bytes are used up, every choice is the first option, so that
/// generators end.
#[derive(Debug)]
pub struct ByteChoices<'a>(Unstructured<'a>);

impl<'a> ByteChoices<'a> {
    /// Creates choices from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn number_below(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is no number below 0");
        self.0.int_in_range(0..=end - 1).unwrap_or_default()
    }

    /// An element of `of`.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.number_below(of.len())]
    }

    /// Whether an event with probability 1 in `many` happens; `false` once the bytes are used up.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.number_below(many) + 1 == many
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A 32-bit number, mostly a small one or one at an edge.
    pub fn any_number(&mut self) -> u32 {
        match self.number_below(8) {
            0 => 0,
            1 => 1,
            2 => u32::from(self.byte()),
            3 => 1 << self.number_below(32),
            4 => u32::MAX >> self.number_below(32),
            _ => self.0.arbitrary().unwrap_or_default(),
        }
    }

    /// At most `most` bytes of the input.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let length = self.number_below(most + 1).min(self.0.len());
        self.0.bytes(length).unwrap_or_default()
    }

    /// The remaining bytes.
    #[must_use]
    pub fn remaining_bytes(self) -> &'a [u8] {
        self.0.take_rest()
    }
}
