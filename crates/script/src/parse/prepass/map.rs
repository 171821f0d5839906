//! Edits to the S text, and the offset map of the result.

use std::ops::Range;

use oxc_span::Span;

use crate::syntax::ConstructId;

/// A replacement of a range of the S text.
#[derive(Clone, Debug)]
pub(crate) struct TextReplacement {
    /// The range in the S text.
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
    /// A construct whose statement begins at this byte offset of `text`.
    pub(crate) statement_start: Option<(ConstructId, usize)>,
}

/// A range that is identical in both texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IdenticalRange {
    source: usize,
    encoded: usize,
    length: usize,
}

/// The offset map between the S text and the encoded text.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetMap {
    pieces: Vec<IdenticalRange>,
}

/// The result of edits.
pub(crate) struct AppliedEdits {
    pub(crate) text: String,
    pub(crate) map: OffsetMap,
    /// The start of each construct's statement in `text`.
    pub(crate) statement_starts: Vec<(ConstructId, usize)>,
}

/// Applies edits, which must not overlap.
pub(crate) fn apply_edits(source: &str, mut edits: Vec<TextReplacement>) -> AppliedEdits {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut encoded =
        String::with_capacity(source.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut map = OffsetMap::default();
    let (mut from, mut begins) = (0, Vec::new());
    for edit in edits {
        map.copy_range(source, from..edit.range.start, &mut encoded);
        begins.extend(edit.statement_start.map(|(id, offset)| (id, encoded.len() + offset)));
        encoded.push_str(&edit.text);
        from = edit.range.end;
    }
    map.copy_range(source, from..source.len(), &mut encoded);
    AppliedEdits { text: encoded, map, statement_starts: begins }
}

impl OffsetMap {
    fn copy_range(&mut self, source: &str, range: Range<usize>, encoded: &mut String) {
        self.pieces.push(IdenticalRange { source: range.start, encoded: encoded.len(), length: range.len() });
        encoded.push_str(&source[range]);
    }

    /// Converts an offset of the encoded text to the S text. Inserted text maps to the end of the text before
    /// it, so the first character of a replacement maps to the first character of the replaced text.
    pub(crate) fn to_source(&self, encoded: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.encoded <= encoded);
        let Some(piece) = after.checked_sub(1).and_then(|before| self.pieces.get(before)) else { return 0 };
        piece.source + (encoded - piece.encoded).min(piece.length)
    }

    /// Converts a span of the encoded text to the S text.
    pub(crate) fn span_to_source(&self, span: Span) -> Range<usize> {
        let (start, end) = (self.to_source(span.start as usize), self.to_source(span.end as usize));
        start..end.max(start)
    }

    /// Whether the encoded text at this offset is copied from the S text, rather than inserted.
    pub(crate) fn is_copied(&self, encoded: usize) -> bool {
        let after = self.pieces.partition_point(|piece| piece.encoded <= encoded);
        let before = after.checked_sub(1).and_then(|before| self.pieces.get(before));
        before.is_some_and(|piece| encoded < piece.encoded + piece.length)
    }

    /// Converts an offset of the S text to the encoded text. Replaced text maps to the beginning of its
    /// replacement.
    pub(crate) fn to_encoded(&self, source: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.source <= source);
        let Some(piece) = after.checked_sub(1).and_then(|before| self.pieces.get(before)) else { return 0 };
        piece.encoded + (source - piece.source).min(piece.length)
    }
}
