//! The content of strings, without their quotes.

use std::borrow::Cow;

/// Resolves the escapes of a text. An unpaired surrogate becomes U+FFFD.
pub(crate) fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let (char, behind) = decode_escape(&rest[at + 1..]);
        let mut utf8 = [0; 4];
        out.extend_from_slice(char.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8).as_bytes());
        rest = behind;
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Whether a text equals `name` up to its quote, with escapes resolved. It reads at most the length of the
/// longest spelling of `name`, independently of the text's length.
pub(crate) fn content_equals(mut raw: &[u8], mut name: &[u8]) -> bool {
    while let Some((byte, behind)) = raw.split_first() {
        let mut utf8 = [0; 4];
        let (said, rest): (&[u8], _) = match byte {
            b'"' => return name.is_empty(),
            b'\\' => {
                let (char, behind) = decode_escape(behind);
                (char.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8).as_bytes(), behind)
            }
            _ => (std::slice::from_ref(byte), behind),
        };
        match name.strip_prefix(said) {
            Some(others) => (raw, name) = (rest, others),
            None => return false,
        }
    }
    false
}

/// Whether a text contains an unpaired surrogate as an escape.
pub(crate) fn has_unpaired_surrogate(raw: &[u8]) -> bool {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let (char, behind) = decode_escape(&rest[at + 1..]);
        if char.is_none() {
            return true;
        }
        rest = behind;
    }
    false
}

/// Returns the character of the escape after whose backslash `text` begins, and the text after it. The
/// character is `None` for an unpaired surrogate.
fn decode_escape(text: &[u8]) -> (Option<char>, &[u8]) {
    let Some((&letter, rest)) = text.split_first() else { return (None, text) };
    let char = match letter {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return decode_unicode_escape(rest),
        other => char::from(other),
    };
    (Some(char), rest)
}

fn decode_unicode_escape(text: &[u8]) -> (Option<char>, &[u8]) {
    let Some((first, rest)) = parse_hex_digits(text) else { return (None, text) };
    let second = rest.strip_prefix(b"\\u").and_then(parse_hex_digits);
    match second {
        Some((second, behind)) if is_high_surrogate(first) && matches!(second, 0xdc00..0xe000) => {
            (char::from_u32(0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff)), behind)
        }
        _ => (char::from_u32(first), rest),
    }
}

fn is_high_surrogate(unit: u32) -> bool {
    matches!(unit, 0xd800..0xdc00)
}

fn parse_hex_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
    Some((value?, rest))
}
