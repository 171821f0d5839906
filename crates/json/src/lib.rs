//! JSON text as slices: nothing is parsed that is not asked for.
//!
//! [`pointer()`] walks to a value by JSON Pointer (RFC 6901) and returns its text, with numbers as they
//! were spelt and keys in their order. It skips what it passes without building anything, and checks only
//! as much of the grammar (RFC 8259) as it needs to find its way; [`valid`] checks all of it.
#![forbid(unsafe_code)]

mod scan;

pub use scan::valid;

use scan::Scanner;

/// Why a pointer leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or ends too early.
    #[error("byte {0}: this is not JSON")]
    NotJson(usize),
    /// The pointer is not one: it must be empty or begin with `/`, and `~` be followed by 0 or 1.
    #[error("not a JSON Pointer: it must be empty or begin with `/`, and `~` be followed by 0 or 1")]
    NotPointer,
}

/// The text of the value that `pointer` leads to, without white space around it; `None` if the document
/// has no such value.
///
/// # Errors
/// When the pointer is not one, or the text on the way to the value is not JSON.
pub fn pointer<'a>(text: &'a [u8], pointer: &str) -> Result<Option<&'a [u8]>, Error> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    if !pointer.is_empty() {
        let steps = pointer.strip_prefix('/').ok_or(Error::NotPointer)?;
        for step in steps.split('/') {
            if !enter(&mut scanner, &unescape(step)?)? {
                return Ok(None);
            }
        }
    }
    let start = scanner.position();
    scanner.skip_value()?;
    Ok(Some(&text[start..scanner.position()]))
}

/// Moves to the member or item that `step` names.
fn enter(scanner: &mut Scanner<'_>, step: &str) -> Result<bool, Error> {
    match scanner.peek() {
        Some(b'{') => scanner.enter_member(step),
        Some(b'[') => match index(step) {
            Some(index) => scanner.enter_item(index),
            None => Ok(false),
        },
        Some(_) => Ok(false),
        None => Err(scanner.error()),
    }
}

/// An array index by RFC 6901: digits without leading zeros.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    (plain && step.bytes().all(|byte| byte.is_ascii_digit())).then(|| step.parse().ok()).flatten()
}

fn unescape(step: &str) -> Result<String, Error> {
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
    Ok(out)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
