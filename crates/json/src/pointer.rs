//! JSON Pointers (RFC 6901) as text: `/parts/of~1it` selects the member `of/it` of the member `parts`.

use std::borrow::Cow;

use crate::error::JsonError;

/// Appends a member's name to a pointer.
#[must_use]
pub fn append_step(pointer: &str, member: &str) -> String {
    format!("{pointer}/{}", escape_step(member))
}

/// Escapes a member's name as a step of a pointer.
#[must_use]
pub fn escape_step(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}

/// Unescapes a step of a pointer. Invalid escapes remain unchanged.
#[must_use]
pub fn unescape_step(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Parses an array index according to RFC 6901: digits without leading zeros.
pub(crate) fn parse_index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|byte| byte.is_ascii_digit())).then(|| step.parse().ok()).flatten()
}

/// Unescapes a step of a pointer: `~1` is a slash and `~0` a tilde.
pub(crate) fn parse_step(step: &str) -> Result<Cow<'_, str>, JsonError> {
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
                _ => return Err(JsonError::NotPointer),
            },
            (char, false) => out.push(char),
        }
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_steps_round_trip() {
        for member in ["", "a", "a/b", "a~b", "~1", "~0~1/", "/~"] {
            assert_eq!(unescape_step(&escape_step(member)), member);
            assert_eq!(parse_step(&escape_step(member)).unwrap(), member);
        }
        assert_eq!(append_step("/parts", "of/it"), "/parts/of~1it");
    }
}
