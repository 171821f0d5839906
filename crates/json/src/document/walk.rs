//! Skipping of values in a checked text, without further checks. In a text that is not JSON, the result is
//! never beyond the end of the text.

/// Returns the position after the string that begins here.
#[inline]
pub(crate) fn skip_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        while let Some(word) = text.get(at..at + 8).and_then(|word| word.first_chunk::<8>()) {
            let marks = mark_delimiters(u64::from_le_bytes(*word));
            at += marks.trailing_zeros() as usize / 8;
            if marks != 0 {
                break;
            }
        }
        match text.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return text.len(),
        }
    }
}

/// Returns a word in which the lowest set bit marks the first byte that is a quote or a backslash. Later
/// bytes may be marked wrongly.
#[inline]
fn mark_delimiters(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    zero(word ^ (ONES * b'"' as u64)) | zero(word ^ (ONES * b'\\' as u64))
}

/// Returns the position after the number, `true`, `false` or `null` that begins here.
#[inline]
pub(crate) fn skip_scalar(text: &[u8], mut at: usize) -> usize {
    while !matches!(text.get(at), None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// Returns the position after the container that begins here.
pub(crate) fn skip_container(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    loop {
        match text.get(at) {
            Some(b'"') => {
                at = skip_string(text, at);
                continue;
            }
            Some(b'{' | b'[') => depth += 1,
            Some(b'}' | b']') => depth -= 1,
            Some(_) => {}
            None => return text.len(),
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
}
