//! Where a place of the emitted JavaScript comes from.

use serde::Serialize;

use crate::program::Position;

/// The emitted text's places, and where each was in the S file. Lines and columns count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceMap {
    /// Emitted place and original, in the order of the emitted text.
    segments: Vec<(Position, Position)>,
}

impl SourceMap {
    /// A map of these pairs, emitted and original.
    #[must_use]
    pub fn new(mut segments: Vec<(Position, Position)>) -> Self {
        segments.sort_unstable();
        Self { segments }
    }

    /// Where in the S file this place of the emitted text was, or what stands before it in its line.
    #[must_use]
    pub fn original(&self, line: u32, column: u32) -> Option<Position> {
        let place = Position { line, column };
        let after = self.segments.partition_point(|(emitted, _)| *emitted <= place);
        let (emitted, original) = self.segments.get(after.checked_sub(1)?)?;
        (emitted.line == line).then_some(*original)
    }
}
