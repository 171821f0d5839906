//! The index of a text: the positions of its longer containers. Building it checks the whole grammar (RFC
//! 8259), so that all other code may assume that the text is JSON.

use super::block::{self, BLOCK_LENGTH, BlockClassification};
use crate::error::{DEPTH, JsonError};

/// The minimum length of a container in the index, in bytes. Skipping a shorter one takes no longer than
/// looking it up.
const MIN_INDEXED_LENGTH: u32 = 64;
/// The initial capacity of the index of a short text, in containers.
const INITIAL_CAPACITY: usize = 4;

/// A container of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedContainer {
    pub(crate) start: u32,
    /// The position after its closing bracket.
    pub(crate) end: u32,
    /// The index entry of the first container after it.
    pub(crate) next: u32,
    /// The number of items or members.
    pub(crate) count: u32,
}

/// Finds the tokens of a text, block by block, and its containers, in order. Both use at most `most` bytes of
/// memory together, including temporary memory during growth.
pub(crate) fn build_index(
    text: &[u8],
    most: usize,
) -> Result<(BlockClassification, Vec<IndexedContainer>), JsonError> {
    if u32::try_from(text.len()).is_err() {
        return Err(JsonError::TooLong);
    }
    let rest = most.checked_sub(block::token_bits_size(text.len())).ok_or(JsonError::IndexTooLarge(0))?;
    std::str::from_utf8(text).map_err(|error| JsonError::NotJson(error.valid_up_to()))?;
    let classification = block::classify_text(text).map_err(JsonError::NotJson)?;
    let blocks = &classification.tokens[..];
    let containers =
        index_containers(IndexTokens::from_position(text, blocks, 0), rest / size_of::<IndexedContainer>())?;
    Ok((classification, containers))
}

/// The tokens of a text, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexTokens<'a> {
    text: &'a [u8],
    blocks: &'a [u64],
    /// The current block, and its remaining tokens.
    block_index: usize,
    remaining_bits: u64,
}

impl<'a> IndexTokens<'a> {
    /// The tokens from a position in the text on.
    #[inline(always)]
    pub(crate) fn from_position(text: &'a [u8], blocks: &'a [u64], place: usize) -> Self {
        let block_index = place / BLOCK_LENGTH;
        let remaining_bits =
            blocks.get(block_index).map_or(0, |bits| bits & (u64::MAX << (place % BLOCK_LENGTH)));
        Self { text, blocks, block_index, remaining_bits }
    }

    /// Returns the first byte of the next token and its position; after the last token, `None` and the text's
    /// length.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> (Option<u8>, usize) {
        let at = self.advance();
        (self.text.get(at).copied(), at)
    }

    /// Advances past the next token, and returns its position; after the last token, the text's length.
    #[inline(always)]
    pub(crate) fn advance(&mut self) -> usize {
        let at = self.peek();
        self.remaining_bits &= self.remaining_bits.wrapping_sub(1);
        at
    }

    /// Returns the position of the next token without advancing.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> usize {
        while self.remaining_bits == 0 {
            std::hint::cold_path();
            self.block_index += 1;
            match self.blocks.get(self.block_index) {
                Some(bits) => self.remaining_bits = *bits,
                None => return self.text.len(),
            }
        }
        self.block_index * BLOCK_LENGTH + self.remaining_bits.trailing_zeros() as usize
    }

    #[inline(always)]
    fn expect_byte(&mut self, byte: u8) -> Result<(), JsonError> {
        let (next, at) = self.next();
        if next == Some(byte) { Ok(()) } else { Err(JsonError::NotJson(at)) }
    }
}

/// An open container, or the level of the root value, which has no closing bracket.
#[derive(Clone, Copy)]
struct OpenContainer {
    /// Its index entry.
    container_index: usize,
    count: u32,
    /// The bracket that ends it.
    closing: u8,
}

/// The closing byte at the level of the root value, where no bracket ends it.
const NO_BRACKET: u8 = 0;

/// Increases the capacity, with at most `most` containers in memory at a time, including those in the old
/// allocation. Returns `false` if this is impossible.
#[cold]
fn grow_capacity(containers: &mut Vec<IndexedContainer>, most: usize) -> bool {
    let now = containers.capacity();
    let more = now.max(INITIAL_CAPACITY).min(most.saturating_sub(2 * now));
    containers.reserve_exact(more);
    more > 0
}

/// Returns the containers of a text that is one value, with at most `most` of them in memory at a time. The
/// state is kept in local variables: in a struct, each token would wait for the previous one's stores and
/// loads.
fn index_containers(mut tokens: IndexTokens<'_>, most: usize) -> Result<Vec<IndexedContainer>, JsonError> {
    let mut containers = Vec::with_capacity((tokens.text.len() / 256).min(most));
    let mut outer = Vec::with_capacity(16);
    let mut open = OpenContainer { container_index: 0, count: 0, closing: NO_BRACKET };
    loop {
        let (first, at) = tokens.next();
        match first {
            Some(b'"') => {}
            Some(bracket @ (b'{' | b'[')) => {
                if outer.len() == DEPTH {
                    return Err(JsonError::TooDeep(at));
                }
                outer.push(open);
                let closing = if bracket == b'{' { b'}' } else { b']' };
                open = OpenContainer { container_index: containers.len(), count: 0, closing };
                if containers.len() == containers.capacity() && !grow_capacity(&mut containers, most) {
                    return Err(JsonError::IndexTooLarge(at));
                }
                containers.push(IndexedContainer { start: at as u32, end: 0, next: 0, count: 0 });
                let behind = tokens;
                let (next, at) = tokens.next();
                match next {
                    Some(b'"') if bracket == b'{' => {
                        tokens.expect_byte(b':')?;
                        continue;
                    }
                    Some(next) if next == closing => {
                        end_container(&mut containers, open, at);
                        open = outer.pop().unwrap_or(open);
                    }
                    _ if bracket == b'[' => {
                        tokens = behind;
                        continue;
                    }
                    _ => return Err(JsonError::NotJson(at)),
                }
            }
            Some(_) if starts_with_scalar(&tokens.text[at..]) => {}
            _ => return Err(JsonError::NotJson(at)),
        }
        loop {
            if open.closing == NO_BRACKET {
                let (more, at) = tokens.next();
                return if more.is_none() { Ok(containers) } else { Err(JsonError::NotJson(at)) };
            }
            open.count += 1;
            let (next, at) = tokens.next();
            if next == Some(b',') {
                if open.closing == b'}' {
                    tokens.expect_byte(b'"')?;
                    tokens.expect_byte(b':')?;
                }
                break;
            }
            if next != Some(open.closing) {
                return Err(JsonError::NotJson(at));
            }
            end_container(&mut containers, open, at);
            match outer.pop() {
                Some(container) => open = container,
                None => return Err(JsonError::NotJson(at)),
            }
        }
    }
}

/// Records the end of a container.
#[inline(always)]
fn end_container(containers: &mut Vec<IndexedContainer>, open: OpenContainer, at: usize) {
    let (end, next) = (at as u32 + 1, containers.len() as u32);
    if let Some(container) = containers.get_mut(open.container_index) {
        if end - container.start < MIN_INDEXED_LENGTH {
            // All containers within it were short, too, and have been removed: it is the last entry.
            containers.pop();
        } else {
            *container = IndexedContainer { end, next, count: open.count, ..*container };
        }
    }
}

/// Whether a text begins with a complete number, `true`, `false` or `null`.
#[inline(always)]
fn starts_with_scalar(text: &[u8]) -> bool {
    is_short_integer(text) || is_any_scalar(text)
}

/// Whether a text begins with a positive integer of at most seven digits, followed by a delimiter other than
/// whitespace. This fast path covers most numbers.
#[inline(always)]
fn is_short_integer(text: &[u8]) -> bool {
    let Some(word) = text.first_chunk() else { return false };
    let count = leading_digits(*word);
    count < 8 && count > 0 && word[0] != b'0' && matches!(word[count], b',' | b'}' | b']')
}

/// Like [`is_short_integer`], for all scalars.
#[inline(never)]
fn is_any_scalar(text: &[u8]) -> bool {
    let rest = match text {
        [b't', b'r', b'u', b'e', rest @ ..] => rest,
        [b'n', b'u', b'l', b'l', rest @ ..] => rest,
        [b'f', b'a', b'l', b's', b'e', rest @ ..] => rest,
        _ => match skip_number(text) {
            Some(rest) => rest,
            None => return false,
        },
    };
    matches!(rest, [] | [b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r', ..])
}

/// Returns the text after a number according to RFC 8259, `-? int frac? exp?`, or `None` if there is no
/// number.
#[inline(always)]
fn skip_number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let rest = match text {
        [b'0', rest @ ..] => rest,
        _ => skip_digits(text)?,
    };
    let rest = match rest {
        [b'.', rest @ ..] => skip_digits(rest)?,
        rest => rest,
    };
    match rest {
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => skip_digits(rest),
        rest => Some(rest),
    }
}

/// Returns the text after a run of digits, or `None` if there are none. Eight digits are checked together,
/// since the length of the run is hard for the CPU to predict.
#[inline(always)]
fn skip_digits(text: &[u8]) -> Option<&[u8]> {
    if let Some(word) = text.first_chunk() {
        let count = leading_digits(*word);
        if count < 8 {
            return (count > 0).then(|| &text[count..]);
        }
    }
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| &text[count..])
}

/// The number of digits at the beginning of eight bytes.
#[inline(always)]
pub(crate) fn leading_digits(bytes: [u8; 8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let values = u64::from_le_bytes(bytes) ^ (ONES * b'0' as u64);
    // The highest bit of each byte that is greater than 9, and of some bytes after the first such byte.
    let others = (values.wrapping_add(ONES * (0x7f - 9)) | values) & (ONES << 7);
    others.trailing_zeros() as usize / 8
}
