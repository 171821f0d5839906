//! The scanner: finds the end of each token, independent of its meaning.
//!
//! Characters alone cannot decide whether a `/` is a division or opens a regular expression. The caller
//! (`super`) decides that from the previous tokens.

use oxc_syntax::identifier::{is_identifier_part, is_identifier_start};

use super::{TokenKind, UnterminatedKind};

/// All punctuators, longest first, so that the first match is the longest.
const PUNCTUATORS: [&str; 34] = [
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
    "**", "#",
];

/// A token's end and kind, and its error if it is unterminated.
pub(super) struct ScannedToken {
    pub(super) end: usize,
    pub(super) kind: TokenKind,
    pub(super) unterminated: Option<UnterminatedKind>,
}

/// White space and comments before a token.
pub(super) struct TokenGap {
    pub(super) start: usize,
    pub(super) newline: bool,
    /// The start of an unterminated comment.
    pub(super) open_comment: Option<usize>,
}

pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

fn is_space(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

/// Skips white space and comments.
pub(super) fn skip_gap(source: &str, from: usize) -> TokenGap {
    let mut gap = TokenGap { start: from, newline: from == 0, open_comment: None };
    if from == 0 && source.starts_with("#!") {
        gap.start = line_end(source, 0);
    }
    loop {
        let rest = &source[gap.start..];
        let Some(c) = rest.chars().next() else { return gap };
        if is_space(c) {
            gap.newline |= is_newline(c);
            gap.start += c.len_utf8();
        } else if rest.starts_with("//") {
            gap.start = line_end(source, gap.start);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let Some(length) = comment.find("*/") else {
                gap.open_comment = Some(gap.start);
                gap.start = source.len();
                return gap;
            };
            gap.newline |= comment[..length].contains(is_newline);
            gap.start += length + 4;
        } else {
            return gap;
        }
    }
}

fn line_end(source: &str, from: usize) -> usize {
    source[from..].find(is_newline).map_or(source.len(), |length| from + length)
}

/// Scans the token at `start`. `in_template` makes a `}` continue the template.
pub(super) fn scan_token(source: &str, start: usize, regex: bool, in_template: bool) -> ScannedToken {
    let rest = &source[start..];
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or('\0');
    let second = chars.next();
    match first {
        '\'' | '"' => scan_string(source, start, first),
        '`' => scan_template(source, start, (TokenKind::Template, TokenKind::TemplateHead)),
        '}' if in_template => {
            scan_template(source, start, (TokenKind::TemplateTail, TokenKind::TemplateMiddle))
        }
        '/' if regex => scan_regex(source, start),
        '0'..='9' => terminated_token(number_end(source, start), TokenKind::Number),
        '.' if second.is_some_and(|c| c.is_ascii_digit()) => {
            terminated_token(number_end(source, start), TokenKind::Number)
        }
        '#' if second.is_some_and(is_name_start) => {
            terminated_token(name_end(source, start + 1), TokenKind::Private)
        }
        c if is_name_start(c) => terminated_token(name_end(source, start), TokenKind::Name),
        c => {
            let known = PUNCTUATORS.iter().find(|text| rest.starts_with(**text) && !is_ternary(rest, text));
            terminated_token(start + known.map_or(c.len_utf8(), |text| text.len()), TokenKind::Punctuator)
        }
    }
}

/// Whether `?.` is a `?` followed by a number: `a?.5:b`.
fn is_ternary(rest: &str, punctuator: &str) -> bool {
    punctuator == "?." && rest[2..].starts_with(|c: char| c.is_ascii_digit())
}

fn terminated_token(end: usize, kind: TokenKind) -> ScannedToken {
    ScannedToken { end, kind, unterminated: None }
}

fn is_name_start(c: char) -> bool {
    is_identifier_start(c) || c == '\\'
}

fn name_end(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(c) = source[at..].chars().next() {
        if c == '\\' {
            at += escape_length(&source[at..]);
        } else if is_identifier_part(c) {
            at += c.len_utf8();
        } else {
            break;
        }
    }
    at
}

/// Returns the length of an escape `\u0061` or `\u{61}`, or of the backslash if it is neither.
fn escape_length(rest: &str) -> usize {
    let hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    if let Some(braced) = rest.strip_prefix("\\u{") {
        let digits = hex(braced);
        return if braced[digits..].starts_with('}') { digits + 4 } else { 1 };
    }
    match rest.strip_prefix("\\u") {
        Some(plain) => 2 + hex(plain).min(4),
        None => 1,
    }
}

fn number_end(source: &str, start: usize) -> usize {
    let bytes = source.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let digits = |mut at: usize| {
        while byte(at).is_ascii_digit() || byte(at) == b'_' {
            at += 1;
        }
        at
    };
    if byte(start) == b'0'
        && byte(start + 1).is_ascii_alphabetic()
        && !matches!(byte(start + 1), b'e' | b'E' | b'n')
    {
        return name_end(source, start + 1);
    }
    let mut at = digits(start);
    if byte(at) == b'.' {
        at = digits(at + 1);
    }
    let sign = usize::from(matches!(byte(at + 1), b'+' | b'-'));
    if matches!(byte(at), b'e' | b'E') && byte(at + 1 + sign).is_ascii_digit() {
        at = digits(at + 1 + sign);
    }
    if byte(at) == b'n' { at + 1 } else { at }
}

fn scan_string(source: &str, start: usize, quote: char) -> ScannedToken {
    let mut chars = source[start + 1..].char_indices();
    while let Some((at, c)) = chars.next() {
        let at = start + 1 + at;
        match c {
            '\\' => skip_escaped(&mut chars),
            '\n' | '\r' => {
                return ScannedToken {
                    end: at,
                    kind: TokenKind::String,
                    unterminated: Some(UnterminatedKind::String),
                };
            }
            c if c == quote => return terminated_token(at + 1, TokenKind::String),
            _ => {}
        }
    }
    ScannedToken { end: source.len(), kind: TokenKind::String, unterminated: Some(UnterminatedKind::String) }
}

/// Skips the character after a backslash, or both of `\r\n`.
fn skip_escaped(chars: &mut std::str::CharIndices<'_>) {
    if let Some((_, '\r')) = chars.next()
        && chars.as_str().starts_with('\n')
    {
        chars.next();
    }
}

/// Scans a template from its first character, a backtick or brace, to the next end or hole.
fn scan_template(source: &str, start: usize, (closed, open): (TokenKind, TokenKind)) -> ScannedToken {
    let mut chars = source[start + 1..].char_indices();
    while let Some((at, c)) = chars.next() {
        let at = start + 1 + at;
        match c {
            '\\' => skip_escaped(&mut chars),
            '`' => return terminated_token(at + 1, closed),
            '$' if source[at + 1..].starts_with('{') => return terminated_token(at + 2, open),
            _ => {}
        }
    }
    ScannedToken { end: source.len(), kind: closed, unterminated: Some(UnterminatedKind::Template) }
}

fn scan_regex(source: &str, start: usize) -> ScannedToken {
    let mut in_class = false;
    let mut chars = source[start + 1..].char_indices();
    while let Some((at, c)) = chars.next() {
        let at = start + 1 + at;
        match c {
            c if is_newline(c) => {
                return ScannedToken {
                    end: at,
                    kind: TokenKind::Regex,
                    unterminated: Some(UnterminatedKind::Regex),
                };
            }
            '\\' if !chars.as_str().starts_with(is_newline) => skip_escaped(&mut chars),
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return terminated_token(name_end(source, at + 1), TokenKind::Regex),
            _ => {}
        }
    }
    ScannedToken { end: source.len(), kind: TokenKind::Regex, unterminated: Some(UnterminatedKind::Regex) }
}
