//! Values that are put into URLs.

use super::has_dot_segment;

/// A value as it stands in a URL: all but RFC 3986's unreserved characters is encoded.
#[must_use]
pub fn encode(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

/// Whether a value can be a segment of a path, or part of one: not empty, no `.` or `..`, no slash, backslash or control
/// character, which a server may take for more than it is. Nor is it one of these to servers that cut parameters (`..;x`)
/// or decode twice (`%2e%2e`): as [`check`](super::check) has it, so that what passes is not refused on its way.
#[must_use]
pub fn is_segment(text: &str) -> bool {
    let is_plain = |letter: char| !matches!(letter, '/' | '\\') && !letter.is_control();
    let has_dots = || text.contains(['.', '%']) && has_dot_segment(text);
    !text.is_empty() && text.chars().all(is_plain) && !has_dots()
}
