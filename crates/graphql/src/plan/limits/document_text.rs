//! Limits on the text of a document, checked in one pass before parsing: its size, its nesting, and the
//! length of names.

use crate::error::{GraphqlError, GraphqlErrorKind};

/// The maximum size of a document. A document of 5,000 tokens usually has a tenth of that.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// The maximum nesting of brackets, including those in values. It bounds the parser's recursion.
const MAX_NESTING: usize = 200;
/// The maximum length of a name. Error messages repeat names, some of them once for each of many others.
const MAX_NAME_BYTES: usize = 256;

/// Checks the size of a text.
pub(crate) fn check_size(text: &str) -> Result<(), Box<GraphqlError>> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!("the document has more than {MAX_DOCUMENT_BYTES} bytes");
        return Err(Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message)));
    }
    Ok(())
}

/// Checks a text before it is parsed.
pub(crate) fn check_text(text: &str) -> Result<(), Box<GraphqlError>> {
    let over = |message: String| Err(Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message)));
    check_size(text)?;
    let bytes = text.as_bytes();
    let (mut at, mut open) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'#' => at += bytes[at..].iter().take_while(|byte| !matches!(byte, b'\n' | b'\r')).count(),
            b'{' | b'[' | b'(' => open += 1,
            b'}' | b']' | b')' => open = open.saturating_sub(1),
            byte if is_name_byte(*byte) => {
                let length = bytes[at..].iter().take_while(|byte| is_name_byte(**byte)).count();
                if length > MAX_NAME_BYTES {
                    return over(format!("the document has a name of more than {MAX_NAME_BYTES} bytes"));
                }
                at += length - 1;
            }
            _ => {}
        }
        if open > MAX_NESTING {
            return over(format!("the document nests brackets more than {MAX_NESTING} levels deep"));
        }
        at += 1;
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The position of the last byte of the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let is_block = bytes[start..].starts_with(b"\"\"\"");
    let mut at = start + if is_block { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' if !is_block => return at,
            b'"' if bytes[at..].starts_with(b"\"\"\"") => return at + 2,
            b'\n' if !is_block => return at,
            _ => {}
        }
        at += 1;
    }
    at
}
