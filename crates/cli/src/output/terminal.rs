//! The terminal: its width, and output to standard output and standard error.
//!
//! Text contains colours, which `anstream` removes if the stream is not a terminal or `NO_COLOR` is set.
//! Write errors (a closed pipe) are ignored.

use std::io::Write;

use anstyle::{AnsiColor, Color, Style};

/// The style of emphasis.
pub(crate) const BOLD: Style = Style::new().bold();
/// The style of success.
pub(crate) const GREEN: Style = foreground_style(AnsiColor::Green);
/// The style of client errors.
pub(crate) const YELLOW: Style = foreground_style(AnsiColor::Yellow);
/// The style of failures.
pub(crate) const RED: Style = foreground_style(AnsiColor::Red);
/// The style of bars.
pub(crate) const CYAN: Style = foreground_style(AnsiColor::Cyan);

/// The width without a terminal.
const DEFAULT_WIDTH: u16 = 100;

/// The width of the terminal in columns, within reasonable bounds.
pub(crate) fn width() -> usize {
    let columns = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| width.0);
    usize::from(columns.clamp(50, 160))
}

/// Writes to standard output.
pub(crate) fn write_stdout(text: &str) {
    let _ = anstream::stdout().write_all(text.as_bytes());
}

/// Writes to standard error.
pub(crate) fn write_stderr(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Applies a style to a text.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

const fn foreground_style(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}
