//! The choices of a generator, read off a fuzzer's bytes.

use arbitrary::Unstructured;

/// Choices that bytes make. Once the bytes are used up, each is the first one, so that generators end.
#[derive(Debug)]
pub struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    /// The choices of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below this one.
    ///
    /// # Panics
    /// If there is none.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "a choice of nothing");
        self.0.int_in_range(0..=end - 1).unwrap_or_default()
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Whether it is the one in so many; not once the bytes are used up.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) + 1 == many
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number of 32 bits: mostly a small one or one at an edge.
    pub fn number(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => u32::from(self.byte()),
            3 => 1 << self.below(32),
            4 => u32::MAX >> self.below(32),
            _ => self.0.arbitrary().unwrap_or_default(),
        }
    }

    /// So many bytes at most, as they come.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let length = self.below(most + 1).min(self.0.len());
        self.0.bytes(length).unwrap_or_default()
    }

    /// All that is left.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }
}
