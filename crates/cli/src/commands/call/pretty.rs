//! Formats JSON in lines and keeps the spelling of every value: `1.0` stays `1.0`, and long numbers keep
//! their digits.

use serde::de::IgnoredAny;

/// Formats a text in lines; `None` if it isn't JSON.
pub(super) fn format_json(text: &[u8]) -> Option<String> {
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    let mut lines = PrettyLines::default();
    for sign in std::str::from_utf8(text).ok()?.chars() {
        lines.push(sign);
    }
    Some(lines.text)
}

#[derive(Default)]
struct PrettyLines {
    text: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether a bracket was opened that is still empty.
    is_bracket_empty: bool,
}

impl PrettyLines {
    fn push(&mut self, sign: char) {
        match sign {
            _ if self.in_string => self.push_in_string(sign),
            ' ' | '\t' | '\r' | '\n' => {}
            ']' | '}' => self.close(sign),
            _ => self.push_outside(sign),
        }
    }

    fn push_in_string(&mut self, sign: char) {
        self.text.push(sign);
        self.in_string = self.escaped || sign != '"';
        self.escaped = !self.escaped && sign == '\\';
    }

    fn close(&mut self, sign: char) {
        self.depth = self.depth.saturating_sub(1);
        if !std::mem::take(&mut self.is_bracket_empty) {
            self.new_line();
        }
        self.text.push(sign);
    }

    fn push_outside(&mut self, sign: char) {
        if std::mem::take(&mut self.is_bracket_empty) {
            self.new_line();
        }
        self.text.push(sign);
        match sign {
            '[' | '{' => (self.is_bracket_empty, self.depth) = (true, self.depth + 1),
            ',' => self.new_line(),
            ':' => self.text.push(' '),
            '"' => self.in_string = true,
            _ => {}
        }
    }

    fn new_line(&mut self) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n("  ", self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::format_json;

    #[test]
    fn values_keep_their_spelling() {
        let text = br#"{"a":[1.0,12345678901234567890123,{}],"b \"[,:":[ ],"c":null}"#;
        let expected = r#"{
  "a": [
    1.0,
    12345678901234567890123,
    {}
  ],
  "b \"[,:": [],
  "c": null
}"#;
        assert_eq!(format_json(text).as_deref(), Some(expected));
    }

    #[test]
    fn ignores_invalid_json() {
        assert_eq!(format_json(b"{\"a\":"), None);
        assert_eq!(format_json(b"\xff"), None);
        assert_eq!(format_json(br#""a\\""#).as_deref(), Some(r#""a\\""#));
    }
}
