//! Emission by edits of the S text, which preserves the author's code, comments included.
//!
//! An edit replaces a range by a sequence of pieces: generated text and ranges of the source. Edits within
//! such a source range still apply, so a range can be wrapped or moved to another place and keeps its own
//! edits. The source map traces every piece back to the S file.

use std::ops::Range;

use super::output::MappedText;

/// A part of the replacement of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplacementPiece {
    /// Generated text.
    Text(String),
    /// A source offset that the following generated text is mapped to.
    MappedOffset(usize),
    /// A range of the source, with the edits in it applied.
    Source(Range<usize>),
    /// A range of the source, with the edits strictly within it applied, but not an edit of exactly this
    /// range.
    SourceInside(Range<usize>),
}

/// The edits of a text.
#[derive(Debug, Default)]
pub(crate) struct TextEdits {
    edits: Vec<RangeEdit>,
}

#[derive(Debug)]
struct RangeEdit {
    range: Range<usize>,
    pieces: Vec<ReplacementPiece>,
}

impl ReplacementPiece {
    pub(crate) fn from_text(words: impl Into<String>) -> Self {
        Self::Text(words.into())
    }
}

impl TextEdits {
    /// Replaces a range by `pieces`. Of two edits of one range, the later is nested in the earlier.
    pub(crate) fn replace(&mut self, range: Range<usize>, pieces: Vec<ReplacementPiece>) {
        self.edits.push(RangeEdit { range, pieces });
    }

    /// Replaces a range by generated text.
    pub(crate) fn replace_text(&mut self, range: Range<usize>, words: impl Into<String>) {
        self.replace(range, vec![ReplacementPiece::from_text(words)]);
    }

    /// Inserts generated text before and after a range.
    pub(crate) fn wrap(&mut self, range: Range<usize>, before: &str, after: &str) {
        let pieces = vec![
            ReplacementPiece::from_text(before),
            ReplacementPiece::Source(range.clone()),
            ReplacementPiece::from_text(after),
        ];
        self.replace(range, pieces);
    }

    /// Writes the pieces, with all edits applied.
    pub(crate) fn write(mut self, source: &str, pieces: &[ReplacementPiece]) -> MappedText {
        self.edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end)));
        let mut writer = EditWriter {
            source,
            edits: &self.edits,
            open_edits: vec![false; self.edits.len()],
            out: MappedText::new(source),
        };
        writer.write_pieces(pieces);
        writer.out
    }
}

struct EditWriter<'a> {
    source: &'a str,
    edits: &'a [RangeEdit],
    /// Whether each edit is being written. An edit does not apply within itself.
    open_edits: Vec<bool>,
    out: MappedText,
}

impl EditWriter<'_> {
    fn write_pieces(&mut self, pieces: &[ReplacementPiece]) {
        for piece in pieces {
            match piece {
                ReplacementPiece::Text(words) => self.out.push_text(words),
                ReplacementPiece::MappedOffset(offset) => self.out.map_to_source(*offset),
                ReplacementPiece::Source(range) => self.write_source(range.clone(), None),
                ReplacementPiece::SourceInside(range) => self.write_source(range.clone(), Some(range)),
            }
        }
    }

    fn write_source(&mut self, range: Range<usize>, except: Option<&Range<usize>>) {
        let mut at = range.start;
        let mut index = self.edits.partition_point(|edit| edit.range.start < at);
        while let Some(edit) = self.edits.get(index) {
            if edit.range.start > range.end || (edit.range.start == range.end && !range.is_empty()) {
                break;
            }
            if self.open_edits[index]
                || except == Some(&edit.range)
                || edit.range.start < at
                || edit.range.end > range.end
            {
                index += 1;
                continue;
            }
            self.out.copy_source(self.source, at..edit.range.start);
            self.out.map_to_source(edit.range.start);
            self.open_edits[index] = true;
            self.write_pieces(&edit.pieces);
            self.open_edits[index] = false;
            at = edit.range.end;
            index += 1;
        }
        self.out.copy_source(self.source, at..range.end);
    }
}
