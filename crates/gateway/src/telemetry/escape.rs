//! Escaping of control characters in log lines that are read on a terminal: the single character `CSI`
//! (U+009B) has the same effect as `ESC [`, and bidirectional controls change the displayed order of a line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// A writer that escapes control characters beyond those that JSON escapes, as `\u009b`. Each write has to
/// consist of whole characters.
#[derive(Debug)]
pub struct EscapingWriter<W>(pub W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match escape(bytes) {
            Cow::Borrowed(bytes) => self.0.write(bytes),
            Cow::Owned(escaped) => self.0.write_all(&escaped).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes DEL, C1 and bidirectional control characters as JSON does. In a JSON document they occur only
/// within strings.
pub(crate) fn escape(text: &[u8]) -> Cow<'_, [u8]> {
    // Most lines are printable ASCII, which contains none of the characters.
    if !text.iter().any(|byte| *byte > b'~') {
        return Cow::Borrowed(text);
    }
    let Ok(text) = std::str::from_utf8(text) else { return Cow::Borrowed(text) };
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_control(letter) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    Cow::Owned(escaped.into_bytes())
}

/// Whether a terminal interprets the character and JSON doesn't escape it: DEL, C1, line separators, and
/// bidirectional controls (Unicode's `Bidi_Control`).
fn is_control(letter: char) -> bool {
    matches!(
        letter,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped_line(text: &str) -> String {
        let mut writer = EscapingWriter(Vec::new());
        writer.write_all(text.as_bytes()).unwrap();
        String::from_utf8(writer.0).unwrap()
    }

    #[test]
    fn escapes_terminal_controls_in_log_lines() {
        assert_eq!(escaped_line("caf\u{e9} \u{9b}2J\u{202e}\n"), "caf\u{e9} \\u009b2J\\u202e\n");
    }

    proptest! {
        #[test]
        fn escaped_json_keeps_its_meaning(text in any::<String>()) {
            let line = escaped_line(&serde_json::to_string(&text).unwrap());
            prop_assert!(!line.chars().any(is_control));
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }
}
