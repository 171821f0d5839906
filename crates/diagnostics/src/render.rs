//! Rendering of diagnostics with their source lines, in the style of rustc.

use std::fmt::Write as _;
use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::line::{LineStarts, saturating_u32};

impl Diagnostic {
    /// Renders a diagnostic about a text with the source lines that it refers to. `file` is the file name to
    /// print.
    #[must_use]
    pub fn render(&self, file: &str, source: &str) -> String {
        let lines = LineStarts::new(source);
        let span = self.location.span();
        let mut marks = vec![UnderlinedRange::new(&lines, &span, &self.label, '^')];
        let related = self.labels.iter();
        marks.extend(
            related.map(|label| UnderlinedRange::new(&lines, &label.location.span(), &label.text, '-')),
        );
        let position = lines.position(span.start);
        let width = marks.iter().map(|mark| mark.line).max().unwrap_or(1).to_string().len();
        let mut text =
            format!("{}[{}]: {}\n", self.severity.name(), self.code.unwrap_or_default(), self.message);
        marks.sort_by_key(|mark| (mark.line, mark.column));
        let _ = writeln!(text, "{:width$}--> {file}:{position}\n{:width$} |", "", "");
        let mut last = None;
        for mark in &marks {
            mark.write(&mut text, &lines, width, last);
            last = Some(mark.line);
        }
        let _ = writeln!(
            text,
            "{:width$} |\n{:width$} = help: {}",
            "",
            "",
            self.hint.as_deref().unwrap_or_default()
        );
        if let Some(rule) = self.rule {
            let _ = writeln!(text, "{:width$} = note: rule {rule} of the S language", "");
        }
        text
    }
}

/// A source range to underline, with its description.
struct UnderlinedRange<'d> {
    line: u32,
    column: u32,
    length: usize,
    text: &'d str,
    sign: char,
}

impl<'d> UnderlinedRange<'d> {
    fn new(lines: &LineStarts<'_>, span: &Range<usize>, text: &'d str, sign: char) -> Self {
        let (from, to) = (lines.position(span.start), lines.position(span.end));
        let end = if to.line == from.line {
            to.column
        } else {
            saturating_u32(lines.line_text(from.line).chars().count() + 1)
        };
        Self {
            line: from.line,
            column: from.column,
            length: end.saturating_sub(from.column).max(1) as usize,
            text,
            sign,
        }
    }

    fn write(&self, text: &mut String, lines: &LineStarts<'_>, width: usize, last: Option<u32>) {
        let line = lines.line_text(self.line);
        if last.is_some_and(|last| last + 1 < self.line) {
            let _ = writeln!(text, "{:.<width$}...", "");
        }
        if last != Some(self.line) {
            let _ = writeln!(text, "{}", format!("{:width$} | {line}", self.line).trim_end());
        }
        // Keep tabs, so that the underline is aligned with the source line above it.
        let before = line.chars().take(self.column as usize - 1).map(|c| if c == '\t' { '\t' } else { ' ' });
        let indent: String = before.collect();
        let signs = self.sign.to_string().repeat(self.length);
        let _ = writeln!(text, "{:width$} | {indent}{signs} {}", "", self.text);
    }
}
