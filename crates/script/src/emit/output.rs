//! The emitted text under construction, with its source map.

use std::ops::Range;

use diagnostics::TextPosition;

use crate::program::source_map::{MappedSegment, SourceMap};

/// An emitted text with its source map.
#[derive(Debug)]
pub(crate) struct MappedText {
    pub(crate) code: String,
    line: u32,
    /// The column in the emitted text, in UTF-16 code units as JavaScript engines count them, from 1.
    column: u32,
    segments: Vec<MappedSegment>,
    /// The start offset of each source line.
    starts: Vec<usize>,
}

impl MappedText {
    pub(crate) fn new(source: &str) -> Self {
        let starts = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let code = String::with_capacity(source.len() * 2);
        Self { code, line: 1, column: 1, segments: Vec::new(), starts }
    }

    /// Appends generated text.
    pub(crate) fn push_text(&mut self, words: &str) {
        for c in words.chars() {
            self.push(c);
        }
    }

    /// Maps the text appended next to an offset of the source.
    pub(crate) fn map_to_source(&mut self, offset: usize) {
        let (line, start) = self.line_at_offset(offset);
        self.add_segment(line, offset - start);
    }

    /// Appends a range of the source and maps each of its tokens.
    pub(crate) fn copy_source(&mut self, source: &str, range: Range<usize>) {
        let Some(text) = source.get(range.clone()) else { return };
        let (mut line, mut start) = self.line_at_offset(range.start);
        let mut before = ' ';
        for (offset, c) in text.char_indices() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            let goes_on = c.is_whitespace() || (is_word(c) && is_word(before));
            if !goes_on || offset == 0 {
                self.add_segment(line, range.start + offset - start);
            }
            self.push(c);
            before = c;
            if c == '\n' {
                (line, start) = (line + 1, range.start + offset + 1);
            }
        }
    }

    /// Returns the source map, with original columns converted to characters. `source` is the text that was
    /// copied from.
    pub(crate) fn take_source_map(&mut self, source: &str) -> SourceMap {
        let mut segments = std::mem::take(&mut self.segments);
        for segment in &mut segments {
            let start = self.starts.get(segment.original.line as usize - 1).copied().unwrap_or(0);
            let before = source.get(start..start + segment.original.column as usize).unwrap_or("");
            segment.units = if before.is_ascii() {
                segment.original.column
            } else {
                saturating_u32(before.encode_utf16().count())
            };
            let characters = if before.is_ascii() { before.len() } else { before.chars().count() };
            segment.original.column = saturating_u32(characters) + 1;
        }
        SourceMap::new(segments)
    }

    /// Maps the position of the next character. Original columns are in bytes from 0 until `map` converts
    /// them.
    fn add_segment(&mut self, line: u32, bytes: usize) {
        let emitted = TextPosition { line: self.line, column: self.column };
        let segment = MappedSegment {
            emitted,
            original: TextPosition { line, column: saturating_u32(bytes) },
            units: 0,
        };
        match self.segments.last_mut() {
            Some(last) if last.emitted == emitted => *last = segment,
            _ => self.segments.push(segment),
        }
    }

    fn push(&mut self, c: char) {
        self.code.push(c);
        if c == '\n' {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += saturating_u32(c.len_utf16());
        }
    }

    /// Returns the line of an offset, from 1, and the start offset of that line.
    fn line_at_offset(&self, offset: usize) -> (u32, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        (saturating_u32(line), self.starts[line - 1])
    }
}

/// Converts a line or column number. Texts that would overflow it are too long to be compiled.
fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
