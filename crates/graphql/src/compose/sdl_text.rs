//! Preparation of a schema's text for the parser, which does not support `extend schema` and recurses as
//! deeply as the text is nested.

use std::borrow::Cow;

/// The maximum nesting depth of brackets, since the parser is recursive.
const MAX_DEPTH: usize = 64;

/// The error for a text that is nested too deeply for the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

/// Replaces `extend schema` by a schema definition of the same length, and adds braces if it has none.
pub(crate) fn normalize_sdl(sdl: &str) -> Result<Cow<'_, str>, TooDeep> {
    let mut tokens = SdlTokens::new(sdl);
    let mut changes: Vec<(usize, &str)> = Vec::new();
    let mut last = SdlToken::Other(b' ');
    let mut is_extended = false;
    let (mut depth, mut end) = (0_usize, 0);
    while let Some(token) = tokens.next() {
        if is_extended && depth == 0 && !last.is_byte(b'@') && !matches!(token, SdlToken::Other(b'@' | b'('))
        {
            if !token.is_byte(b'{') {
                changes.push((end, "{}"));
            }
            is_extended = false;
        }
        match token {
            SdlToken::Other(b'(' | b'[' | b'{') => depth += 1,
            SdlToken::Other(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            SdlToken::Name("schema") if depth == 0 && last == SdlToken::Name("extend") => {
                changes.push((end - "extend".len(), "extend"));
                is_extended = true;
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        (last, end) = (token, tokens.position);
    }
    if is_extended {
        changes.push((end, "{}"));
    }
    Ok(apply_changes(sdl, &changes))
}

/// Whether a text's brackets are nested too deeply for the parser.
pub(super) fn is_too_deep(text: &str) -> bool {
    normalize_sdl(text).is_err()
}

fn apply_changes<'t>(sdl: &'t str, changes: &[(usize, &str)]) -> Cow<'t, str> {
    if changes.is_empty() {
        return Cow::Borrowed(sdl);
    }
    let mut text = String::with_capacity(sdl.len() + 2 * changes.len());
    let mut from = 0;
    for &(at, what) in changes {
        text.push_str(&sdl[from..at]);
        if what == "extend" {
            text.push_str("      ");
            from = at + what.len();
        } else {
            text.push_str(what);
            from = at;
        }
    }
    text.push_str(&sdl[from..]);
    Cow::Owned(text)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SdlToken<'t> {
    Name(&'t str),
    Text,
    Other(u8),
}

impl SdlToken<'_> {
    fn is_byte(self, byte: u8) -> bool {
        self == SdlToken::Other(byte)
    }
}

struct SdlTokens<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> SdlTokens<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    /// The next token. `at` is the position of its end.
    fn next(&mut self) -> Option<SdlToken<'t>> {
        let bytes = self.text.as_bytes();
        loop {
            let start = self.position;
            match *bytes.get(start)? {
                b'#' => self.position += prefix_length(&bytes[start..], |byte| byte != b'\n'),
                byte if byte.is_ascii_whitespace() || byte == b',' => self.position += 1,
                b'"' => {
                    self.position = end_of_string(bytes, start);
                    return Some(SdlToken::Text);
                }
                byte if is_name_byte(byte) => {
                    self.position += prefix_length(&bytes[start..], is_name_byte);
                    return Some(SdlToken::Name(&self.text[start..self.position]));
                }
                byte => {
                    self.position += 1;
                    return Some(SdlToken::Other(byte));
                }
            }
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn prefix_length(bytes: &[u8], fits: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| !fits(byte)).unwrap_or(bytes.len())
}

/// The end of the string that begins here; the end of the text if the string is not terminated.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let is_block = bytes[start..].starts_with(b"\"\"\"");
    let mut at = start + if is_block { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !is_block => at += 2,
            b'\\' if bytes[at..].starts_with(b"\\\"\"\"") => at += 4,
            b'"' if !is_block => return at + 1,
            b'"' if bytes[at..].starts_with(b"\"\"\"") => return at + 3,
            b'\n' if !is_block => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_schema_becomes_a_definition() {
        let text = |sdl| normalize_sdl(sdl).map(Cow::into_owned);
        assert_eq!(
            text("extend schema @link(url: \"u{\", import: [\"@key\"])\ntype Query { a: Int }").unwrap(),
            "       schema @link(url: \"u{\", import: [\"@key\"]){}\ntype Query { a: Int }"
        );
        assert_eq!(
            text("extend schema @a @b(c: 1) { query: Q }").unwrap(),
            "       schema @a @b(c: 1) { query: Q }"
        );
        assert_eq!(text("extend schema @a").unwrap(), "       schema @a{}");
        let untouched = "# extend schema\ntype T { extend: schema schema: String } \"\"\" extend schema \\\"\"\" \"\"\" scalar S";
        assert_eq!(text(untouched).unwrap(), untouched);
    }

    #[test]
    fn rejects_deeply_nested_brackets() {
        assert_eq!(normalize_sdl(&"[".repeat(MAX_DEPTH + 1)), Err(TooDeep));
        assert!(normalize_sdl(&"[]".repeat(1000)).is_ok());
    }
}
