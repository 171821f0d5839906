//! Terminal output: results to stdout, and progress to stderr if it is a terminal.

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Color, Style};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GREEN: Style = coloured(AnsiColor::Green);
pub(crate) const YELLOW: Style = coloured(AnsiColor::Yellow);
pub(crate) const RED: Style = coloured(AnsiColor::Red);
pub(crate) const CYAN: Style = coloured(AnsiColor::Cyan);

/// Writes a result in place of the progress.
pub(crate) fn write_result(text: &str) {
    show_progress("");
    let _ = anstream::stdout().write_all(text.as_bytes());
}

/// Writes an error.
pub(crate) fn write_error(text: &str) {
    show_progress("");
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Shows the current step in place of the previous one.
pub(crate) fn show_progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}

/// Applies a style to a text.
pub(crate) fn apply_style(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}
