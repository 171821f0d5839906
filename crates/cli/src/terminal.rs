//! The terminal: its width, and two ways to write to it.
//!
//! Text is made with its colours; `anstream` takes them out again where the stream is no terminal or
//! `NO_COLOR` is set. What can't be written (the reader went away) is nobody's loss.

use std::io::Write;

use anstyle::{AnsiColor, Color, Style};

/// For what matters more.
pub(crate) const BOLD: Style = Style::new().bold();
/// For what went well.
pub(crate) const GREEN: Style = coloured(AnsiColor::Green);
/// For what a client got wrong.
pub(crate) const YELLOW: Style = coloured(AnsiColor::Yellow);
/// For what failed.
pub(crate) const RED: Style = coloured(AnsiColor::Red);
/// For bars.
pub(crate) const CYAN: Style = coloured(AnsiColor::Cyan);

/// Columns where there is no terminal to ask.
const USUAL_WIDTH: u16 = 100;

/// How many columns there are to draw in.
pub(crate) fn width() -> usize {
    let columns = terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0);
    usize::from(columns.clamp(50, 160))
}

/// Writes to the standard output.
pub(crate) fn say(text: &str) {
    let _ = anstream::stdout().write_all(text.as_bytes());
}

/// Writes to the standard error.
pub(crate) fn complain(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// A text in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}
