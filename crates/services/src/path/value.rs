//! Values for use in URLs.

use super::has_dot_segment;

/// Returns a value encoded for a URL: all characters except RFC 3986's unreserved ones are percent-encoded.
#[must_use]
pub fn percent_encode(text: &str) -> String {
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

/// Whether a value can be a path segment, or a part of one: it is not empty, `.` or `..`, and has no slash,
/// backslash or control character that a server may interpret. It must also not become `.` or `..` for
/// servers that cut parameters (`..;x`) or decode twice (`%2e%2e`). The rules agree with
/// [`check`](super::check_path), so that accepted values are not refused later.
#[must_use]
pub fn is_safe_segment(text: &str) -> bool {
    let is_plain = |letter: char| !matches!(letter, '/' | '\\') && !letter.is_control();
    let has_dots = || text.contains(['.', '%']) && has_dot_segment(text);
    !text.is_empty() && text.chars().all(is_plain) && !has_dots()
}
