//! Edits to S text, and the map back from what they make of it.

use std::ops::Range;

use oxc_span::Span;

use crate::syntax::ConstructId;

/// Text that takes the place of other text.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    /// What it replaces, in S.
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
    /// The construct whose statement begins so many bytes into `text`.
    pub(crate) begins: Option<(ConstructId, usize)>,
}

/// A stretch that is the same in both texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    source: usize,
    encoded: usize,
    length: usize,
}

/// Which place of the S text stands where in the encoded one.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetMap {
    pieces: Vec<Piece>,
}

/// What edits make of a text.
pub(crate) struct Applied {
    pub(crate) text: String,
    pub(crate) map: OffsetMap,
    /// Where the constructs' statements begin in it.
    pub(crate) begins: Vec<(ConstructId, usize)>,
}

/// Makes edits, which must not overlap.
pub(crate) fn apply(source: &str, mut edits: Vec<Edit>) -> Applied {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut encoded =
        String::with_capacity(source.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut map = OffsetMap::default();
    let (mut from, mut begins) = (0, Vec::new());
    for edit in edits {
        map.copy(source, from..edit.range.start, &mut encoded);
        begins.extend(edit.begins.map(|(id, offset)| (id, encoded.len() + offset)));
        encoded.push_str(&edit.text);
        from = edit.range.end;
    }
    map.copy(source, from..source.len(), &mut encoded);
    Applied { text: encoded, map, begins }
}

impl OffsetMap {
    fn copy(&mut self, source: &str, range: Range<usize>, encoded: &mut String) {
        self.pieces.push(Piece { source: range.start, encoded: encoded.len(), length: range.len() });
        encoded.push_str(&source[range]);
    }

    /// The place in S of a place in the encoded text. What was put in stands at the end of the text before it, so that
    /// the first character of what replaced something is the first of what was replaced.
    pub(crate) fn to_source(&self, encoded: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.encoded <= encoded);
        let Some(piece) = after.checked_sub(1).and_then(|before| self.pieces.get(before)) else { return 0 };
        piece.source + (encoded - piece.encoded).min(piece.length)
    }

    /// The place in S of a span of the encoded text.
    pub(crate) fn span_to_source(&self, span: Span) -> Range<usize> {
        let (start, end) = (self.to_source(span.start as usize), self.to_source(span.end as usize));
        start..end.max(start)
    }

    /// Whether what stands in the encoded text here stands in S, too, rather than being put in.
    pub(crate) fn is_of_source(&self, encoded: usize) -> bool {
        let after = self.pieces.partition_point(|piece| piece.encoded <= encoded);
        let before = after.checked_sub(1).and_then(|before| self.pieces.get(before));
        before.is_some_and(|piece| encoded < piece.encoded + piece.length)
    }

    /// The place in the encoded text of a place in S. What was replaced stands at the beginning of what replaced it.
    pub(crate) fn to_encoded(&self, source: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.source <= source);
        let Some(piece) = after.checked_sub(1).and_then(|before| self.pieces.get(before)) else { return 0 };
        piece.encoded + (source - piece.source).min(piece.length)
    }
}
