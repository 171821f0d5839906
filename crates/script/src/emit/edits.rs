//! Emission by edits of the S text, so that what the author wrote stays as it was written, comments and all.
//!
//! An edit says what stands in place of a range. What it says is made of words of ours and of ranges of the source,
//! in which the edits within them hold again; so a range can be wrapped, or lifted to another place, and is written
//! with its own edits there. Every piece leads back to the S file by the source map.

use std::ops::Range;

use super::output::Output;

/// A part of what stands in place of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Words of ours.
    Words(String),
    /// A place of the source that the words behind it belong to.
    At(usize),
    /// A range of the source, with the edits in it.
    Source(Range<usize>),
    /// The same, without the edits of just this range.
    Inside(Range<usize>),
}

/// What is made of a text.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    edits: Vec<Edit>,
}

#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    pieces: Vec<Piece>,
}

impl Piece {
    pub(crate) fn words(words: impl Into<String>) -> Self {
        Self::Words(words.into())
    }
}

impl Edits {
    /// Puts `pieces` in place of a range. Of two edits of one range the later one stands within the earlier.
    pub(crate) fn replace(&mut self, range: Range<usize>, pieces: Vec<Piece>) {
        self.edits.push(Edit { range, pieces });
    }

    /// Puts words in place of a range.
    pub(crate) fn words(&mut self, range: Range<usize>, words: impl Into<String>) {
        self.replace(range, vec![Piece::words(words)]);
    }

    /// Puts words before a range, and others behind it.
    pub(crate) fn wrap(&mut self, range: Range<usize>, before: &str, after: &str) {
        let pieces = vec![Piece::words(before), Piece::Source(range.clone()), Piece::words(after)];
        self.replace(range, pieces);
    }

    /// Writes the pieces, and what they are made of.
    pub(crate) fn write(mut self, source: &str, pieces: &[Piece]) -> Output {
        self.edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end)));
        let mut writer = Writer {
            source,
            edits: &self.edits,
            open: vec![false; self.edits.len()],
            out: Output::new(source),
        };
        writer.pieces(pieces);
        writer.out
    }
}

struct Writer<'a> {
    source: &'a str,
    edits: &'a [Edit],
    /// Which edits are being written: such a one doesn't hold within itself.
    open: Vec<bool>,
    out: Output,
}

impl Writer<'_> {
    fn pieces(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Words(words) => self.out.words(words),
                Piece::At(offset) => self.out.at(*offset),
                Piece::Source(range) => self.source(range.clone(), None),
                Piece::Inside(range) => self.source(range.clone(), Some(range)),
            }
        }
    }

    fn source(&mut self, range: Range<usize>, except: Option<&Range<usize>>) {
        let mut at = range.start;
        let mut index = self.edits.partition_point(|edit| edit.range.start < at);
        while let Some(edit) = self.edits.get(index) {
            if edit.range.start > range.end || (edit.range.start == range.end && !range.is_empty()) {
                break;
            }
            if self.open[index]
                || except == Some(&edit.range)
                || edit.range.start < at
                || edit.range.end > range.end
            {
                index += 1;
                continue;
            }
            self.out.copy(self.source, at..edit.range.start);
            self.out.at(edit.range.start);
            self.open[index] = true;
            self.pieces(&edit.pieces);
            self.open[index] = false;
            at = edit.range.end;
            index += 1;
        }
        self.out.copy(self.source, at..range.end);
    }
}
