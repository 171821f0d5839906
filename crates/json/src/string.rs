//! What stands between the quotes of a string, and between the slashes of a pointer.

use std::borrow::Cow;

use crate::Error;

/// Text without its escapes. An unpaired surrogate becomes U+FFFD.
pub(crate) fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let (char, behind) = escape(&rest[at + 1..]);
        let mut utf8 = [0; 4];
        out.extend_from_slice(char.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8).as_bytes());
        rest = behind;
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Whether an escape is an unpaired surrogate.
pub(crate) fn is_unpaired(raw: &[u8]) -> bool {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let (char, behind) = escape(&rest[at + 1..]);
        if char.is_none() {
            return true;
        }
        rest = behind;
    }
    false
}

/// The character of the escape whose backslash stands before `text`, and what follows it; none for an
/// unpaired surrogate.
fn escape(text: &[u8]) -> (Option<char>, &[u8]) {
    let Some((&letter, rest)) = text.split_first() else { return (None, text) };
    let char = match letter {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(rest),
        other => char::from(other),
    };
    (Some(char), rest)
}

fn unicode(text: &[u8]) -> (Option<char>, &[u8]) {
    let Some((first, rest)) = digits(text) else { return (None, text) };
    let second = rest.strip_prefix(b"\\u").and_then(digits);
    match second {
        Some((second, behind)) if is_high(first) && matches!(second, 0xdc00..0xe000) => {
            (char::from_u32(0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff)), behind)
        }
        _ => (char::from_u32(first), rest),
    }
}

fn is_high(unit: u32) -> bool {
    matches!(unit, 0xd800..0xdc00)
}

fn digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
    Some((value?, rest))
}

/// An array index by RFC 6901: digits without leading zeros.
pub(crate) fn pointer_index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|byte| byte.is_ascii_digit())).then(|| step.parse().ok()).flatten()
}

/// A step of a pointer, without its escapes: `~1` is a slash and `~0` a tilde.
pub(crate) fn pointer_step(step: &str) -> Result<Cow<'_, str>, Error> {
    if !step.contains('~') {
        return Ok(Cow::Borrowed(step));
    }
    let mut out = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(char) = chars.next() {
        match (char, char == '~') {
            (_, true) => match chars.next() {
                Some('0') => out.push('~'),
                Some('1') => out.push('/'),
                _ => return Err(Error::NotPointer),
            },
            (char, false) => out.push(char),
        }
    }
    Ok(Cow::Owned(out))
}
