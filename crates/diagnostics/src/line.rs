//! Conversion of byte offsets to lines and columns. Both count from 1, and columns are in characters (Unicode
//! scalar values).
//!
//! Columns are in characters and not in UTF-16 code units, as in the other crates, and because a terminal
//! shows one cell for each character. `\n`, `\r\n`, `\r`, U+2028 and U+2029 end a line, as in JavaScript.

use serde::Serialize;

/// The line starts of a text.
#[derive(Clone, Debug)]
pub struct LineStarts<'s> {
    source: &'s str,
    starts: Vec<usize>,
}

/// A position in a text. Both numbers count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TextPosition {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl<'s> LineStarts<'s> {
    /// Finds the lines of a text.
    #[must_use]
    pub fn new(source: &'s str) -> Self {
        let ends = |(at, c): (usize, char)| match c {
            '\r' if source[at + 1..].starts_with('\n') => None,
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(at + c.len_utf8()),
            _ => None,
        };
        let starts = std::iter::once(0).chain(source.char_indices().filter_map(ends)).collect();
        Self { source, starts }
    }

    /// Returns the position of a byte offset. Offsets past the end give the end of the text.
    #[must_use]
    pub fn position(&self, offset: usize) -> TextPosition {
        let mut offset = offset.min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        TextPosition {
            line: saturating_u32(line),
            column: saturating_u32(self.source[start..offset].chars().count() + 1),
        }
    }

    /// Returns a line's text without its line terminator, by the line's number.
    #[must_use]
    pub fn line_text(&self, line: u32) -> &'s str {
        let line = line as usize;
        let start = line.checked_sub(1).and_then(|index| self.starts.get(index));
        let Some(&start) = start else { return "" };
        let end = self.starts.get(line).copied().unwrap_or(self.source.len());
        self.source[start..end].trim_end_matches(['\n', '\r', '\u{2028}', '\u{2029}'])
    }
}

/// Converts a line or column number. Texts that would overflow it are too long to be compiled.
pub(crate) fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl std::fmt::Display for TextPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_as_in_javascript() {
        let source = "é😀x\r\ny\rz\u{2028}w\n";
        let lines = LineStarts::new(source);
        let place = |text: &str| lines.position(source.find(text).expect("the text contains it")).to_string();
        assert_eq!(["x", "y", "z", "w"].map(place), ["1:3", "2:1", "3:1", "4:1"]);
        assert_eq!(lines.position(source.len()).to_string(), "5:1");
        assert_eq!(
            lines.position(source.len() + 9).to_string(),
            "5:1",
            "an offset past the text gives its end"
        );
        assert_eq!(lines.position(1).to_string(), "1:1", "an offset within a character gives its beginning");
        assert_eq!(
            [
                lines.line_text(1),
                lines.line_text(2),
                lines.line_text(5),
                lines.line_text(9),
                lines.line_text(0)
            ],
            ["é😀x", "y", "", "", ""]
        );
    }
}
