//! Source maps from the emitted JavaScript to the S file.

use diagnostics::TextPosition;
use serde::Serialize;

/// A source map: positions of the emitted text with their origins in the S file. Lines and columns count from
/// 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceMap {
    /// The segments, in the order of the emitted text.
    segments: Vec<MappedSegment>,
}

/// A mapped position. It applies to the emitted text up to the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MappedSegment {
    /// The position in the emitted text. Its column is in UTF-16 code units, as in JavaScript engines.
    pub emitted: TextPosition,
    /// The position in the S file. Its column is in characters.
    pub original: TextPosition,
    /// The original column in UTF-16 code units from 0, as source maps need it.
    pub units: u32,
}

impl SourceMap {
    /// Creates a map from segments in any order.
    #[must_use]
    pub fn new(mut segments: Vec<MappedSegment>) -> Self {
        segments.sort_unstable();
        Self { segments }
    }

    /// Returns the position in the S file of the nearest segment at or before a position of the emitted text,
    /// in the same line.
    #[must_use]
    pub fn original_position(&self, line: u32, column: u32) -> Option<TextPosition> {
        let position = TextPosition { line, column };
        let after = self.segments.partition_point(|segment| segment.emitted <= position);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (segment.emitted.line == line).then_some(segment.original)
    }

    /// Returns the position in the emitted text that has this origin, if there is one.
    #[must_use]
    pub fn emitted_position(&self, original: TextPosition) -> Option<TextPosition> {
        let there = |segment: &&MappedSegment| segment.original == original;
        self.segments.iter().find(there).map(|segment| segment.emitted)
    }

    /// Returns the map as the JSON text of a source map, revision 3.
    #[must_use]
    pub fn to_v3_json(&self, name: &str, source: &str) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let (name, source, mappings) = (text(name), text(source), self.mappings());
        format!(
            r#"{{"version":3,"sources":[{name}],"sourcesContent":[{source}],"names":[],"mappings":"{mappings}"}}"#
        )
    }

    fn mappings(&self) -> String {
        let mut out = String::new();
        let (mut line, mut column, mut to_line, mut to_column) = (1, 0, 0, 0);
        let mut is_first = true;
        for segment in &self.segments {
            while line < segment.emitted.line {
                out.push(';');
                (line, column, is_first) = (line + 1, 0, true);
            }
            if !is_first {
                out.push(',');
            }
            is_first = false;
            let now = [segment.emitted.column - 1, segment.original.line - 1, segment.units].map(i64::from);
            push_vlq(&mut out, now[0] - column);
            push_vlq(&mut out, 0);
            push_vlq(&mut out, now[1] - to_line);
            push_vlq(&mut out, now[2] - to_column);
            [column, to_line, to_column] = now;
        }
        out
    }
}

/// Appends a number as a base 64 VLQ: five bits a digit, lowest first. The first bit is the sign.
fn push_vlq(out: &mut String, number: i64) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rest = (number.unsigned_abs() << 1) | u64::from(number < 0);
    loop {
        let more = rest >> 5 != 0;
        let digit = (rest & 31) | if more { 32 } else { 0 };
        out.push(char::from(DIGITS[usize::try_from(digit).unwrap_or(0)]));
        rest >>= 5;
        if !more {
            return;
        }
    }
}
