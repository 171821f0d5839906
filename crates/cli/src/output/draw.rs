//! A timeline of upstream calls: a bar for each on a common axis.
//!
//! `orfa dev` draws the gateway's reports, and `orfa call -v` the entries of `Server-Timing`. Both provide
//! [`CallBar`]s and produce the same picture.

use std::fmt::Write;
use std::time::Duration;

use anstyle::Style;

use crate::output::terminal::{self, paint};
use crate::output::units;

/// The maximum number of drawn calls. The remaining ones are summarised in one line.
const MAX_ROWS: usize = 40;
/// The minimum width of a bar.
const MIN_BAR_WIDTH: usize = 10;
/// The columns between the parts: two in front, two on each side of the outcome, two pipes, ten for the time.
const GAP_WIDTH: usize = 18;

/// An upstream call, prepared for drawing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallBar {
    /// Service, method, path.
    pub(crate) name: String,
    pub(crate) outcome: CallBarOutcome,
    /// From the start of the request to the start of the call.
    pub(crate) start: Duration,
    /// From the start of the request to the end of the call, if it ended.
    pub(crate) end: Option<Duration>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallBarOutcome {
    Status(u16),
    /// No status, with the reason: `no answer`, `not sent`.
    NoStatus(String),
}

impl CallBarOutcome {
    /// Parses a status, or keeps the text.
    pub(crate) fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::NoStatus(text.to_owned()), Self::Status)
    }

    fn label(&self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::NoStatus(why) => why.clone(),
        }
    }

    fn style(&self) -> Style {
        match self {
            Self::Status(status) => status_style(*status),
            Self::NoStatus(_) => terminal::RED,
        }
    }
}

/// The colour of a status, by its class.
pub(crate) fn status_style(status: u16) -> Style {
    match status {
        0..400 => terminal::GREEN,
        400..500 => terminal::YELLOW,
        _ => terminal::RED,
    }
}

/// Draws a line for each call. The axis ends with the request at `total`, or with the last call if that is
/// later.
pub(crate) fn draw_timeline(calls: &[CallBar], total: Duration, width: usize) -> String {
    let shown = calls.get(..MAX_ROWS).unwrap_or(calls);
    let columns = ColumnWidths::fit(shown, width);
    let axis = calls.iter().filter_map(|call| call.end).fold(total, Duration::max);
    let mut text = String::new();
    for call in shown {
        let _ = writeln!(text, "{}", columns.draw_row(call, axis));
    }
    if shown.len() < calls.len() {
        let _ = writeln!(text, "  ... and {} more", calls.len() - shown.len());
    }
    text
}

/// The widths of the columns. The name has its full width up to half of the line, the bar has the rest.
struct ColumnWidths {
    name: usize,
    outcome: usize,
    bar: usize,
}

impl ColumnWidths {
    fn fit(calls: &[CallBar], width: usize) -> Self {
        let longest = |measure: fn(&CallBar) -> usize| calls.iter().map(measure).max().unwrap_or(0);
        let outcome = longest(|call| call.outcome.label().len());
        let room = width.saturating_sub(outcome + GAP_WIDTH);
        let name =
            longest(|call| call.name.chars().count()).min(width / 2).min(room.saturating_sub(MIN_BAR_WIDTH));
        let bar = room.saturating_sub(name).max(MIN_BAR_WIDTH);
        Self { name, outcome, bar }
    }

    fn draw_row(&self, call: &CallBar, axis: Duration) -> String {
        let Self { name, outcome, .. } = *self;
        let label = shorten(&call.name, name);
        let ended = format!("{:<outcome$}", call.outcome.label());
        let took = call
            .end
            .map_or_else(String::new, |end| units::format_milliseconds(end.saturating_sub(call.start)));
        let row = format!(
            "  {label:<name$}  {}  |{}| {took:>9}",
            paint(call.outcome.style(), &ended),
            self.draw_bar(call, axis)
        );
        row.trim_end().to_owned()
    }

    fn draw_bar(&self, call: &CallBar, axis: Duration) -> String {
        let from = self.column_of(call.start, axis).min(self.bar - 1);
        let to = self.column_of(call.end.unwrap_or(axis), axis).clamp(from + 1, self.bar);
        let sign = if call.end.is_some() { "=" } else { "." };
        let bar = paint(terminal::CYAN, &sign.repeat(to - from));
        format!("{}{bar}{}", " ".repeat(from), " ".repeat(self.bar - to))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a column of a terminal, between 0 and its width"
    )]
    fn column_of(&self, time: Duration, axis: Duration) -> usize {
        let part = time.as_secs_f64() / axis.as_secs_f64().max(f64::MIN_POSITIVE);
        (part * self.bar as f64).round() as usize
    }
}

/// Shortens a text to `columns` by replacing its middle with `..`, since both the service at the start and
/// the query at the end distinguish calls.
fn shorten(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let kept = columns.saturating_sub(2);
    let front: String = text.chars().take(kept - kept / 3).collect();
    let back: String = text.chars().skip(length - kept / 3).collect();
    format!("{front}..{back}")
}

#[cfg(test)]
mod tests;
