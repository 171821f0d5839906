//! The index of a text: where its longer containers begin and end. Making it checks the whole grammar
//! (RFC 8259), so that everything else may take the text for what it is.

use crate::Error;
use crate::block::{self, BLOCK, Found};

/// Deeper nesting is refused.
pub const DEPTH: usize = 1024;
/// Containers of fewer bytes are not in the index: passing them costs no more than finding them there.
const SHORT: u32 = 64;

/// A container of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) start: u32,
    /// Behind its closing bracket.
    pub(crate) end: u32,
    /// The place in the index of the first container behind it.
    pub(crate) next: u32,
    /// How many items or members it has.
    pub(crate) count: u32,
}

/// Where the tokens of a text begin, block by block, and its containers in their order.
pub(crate) fn index(text: &[u8]) -> Result<(Found, Vec<Container>), Error> {
    if u32::try_from(text.len()).is_err() {
        return Err(Error::TooLong);
    }
    std::str::from_utf8(text).map_err(|error| Error::NotJson(error.valid_up_to()))?;
    let found = block::tokens(text).map_err(Error::NotJson)?;
    let blocks = &found.tokens[..];
    let mut reader = Reader {
        tokens: Tokens { text, blocks, number: 0, bits: blocks.first().copied().unwrap_or_default() },
        open: Vec::with_capacity(16),
        containers: Vec::with_capacity(text.len() / 256),
    };
    reader.document()?;
    let (more, at) = reader.tokens.next();
    let containers = reader.containers;
    if more.is_none() { Ok((found, containers)) } else { Err(Error::NotJson(at)) }
}

/// The tokens of a text, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    text: &'a [u8],
    blocks: &'a [u64],
    /// The block that is read, and what is left of it.
    number: usize,
    bits: u64,
}

impl<'a> Tokens<'a> {
    /// Those from a place in the text on.
    #[inline(always)]
    pub(crate) fn from(text: &'a [u8], blocks: &'a [u64], place: usize) -> Self {
        let number = place / BLOCK;
        let bits = blocks.get(number).map_or(0, |bits| bits & (u64::MAX << (place % BLOCK)));
        Self { text, blocks, number, bits }
    }

    /// The first byte of the next token and its place; behind the last one none, and the text's length.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> (Option<u8>, usize) {
        let at = self.pass();
        (self.text.get(at).copied(), at)
    }

    /// The place of the next token; behind the last one the text's length.
    #[inline(always)]
    pub(crate) fn pass(&mut self) -> usize {
        let at = self.peek();
        self.bits &= self.bits.wrapping_sub(1);
        at
    }

    /// The same, and the token stays the next.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> usize {
        while self.bits == 0 {
            self.number += 1;
            match self.blocks.get(self.number) {
                Some(bits) => self.bits = *bits,
                None => return self.text.len(),
            }
        }
        self.number * BLOCK + self.bits.trailing_zeros() as usize
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        let (next, at) = self.next();
        if next == Some(byte) { Ok(()) } else { Err(Error::NotJson(at)) }
    }
}

/// A container that is open.
struct Open {
    /// Its place in the index.
    place: usize,
    count: u32,
    object: bool,
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    open: Vec<Open>,
    containers: Vec<Container>,
}

impl Reader<'_> {
    /// Passes the value that the document is.
    fn document(&mut self) -> Result<(), Error> {
        let mut token = self.tokens.next();
        loop {
            let at = token.1;
            match token.0 {
                Some(b'"') => {}
                Some(b'{') => {
                    self.begin(at, true)?;
                    match self.tokens.next() {
                        (Some(b'"'), _) => {
                            self.tokens.expect(b':')?;
                            token = self.tokens.next();
                            continue;
                        }
                        (Some(b'}'), at) => self.end(at, 0),
                        (_, at) => return Err(Error::NotJson(at)),
                    }
                }
                Some(b'[') => {
                    self.begin(at, false)?;
                    token = self.tokens.next();
                    if token.0 != Some(b']') {
                        continue;
                    }
                    self.end(token.1, 0);
                }
                Some(_) if scalar(&self.tokens.text[at..]) => {}
                _ => return Err(Error::NotJson(at)),
            }
            match self.behind()? {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }

    /// Passes what stands behind a value up to the next one, whose token it is; none when all is closed.
    #[inline(always)]
    fn behind(&mut self) -> Result<Option<(Option<u8>, usize)>, Error> {
        while let Some(open) = self.open.last_mut() {
            open.count += 1;
            let (count, object) = (open.count, open.object);
            match self.tokens.next() {
                (Some(b','), _) => {
                    if object {
                        self.tokens.expect(b'"')?;
                        self.tokens.expect(b':')?;
                    }
                    return Ok(Some(self.tokens.next()));
                }
                (Some(b'}'), at) if object => self.end(at, count),
                (Some(b']'), at) if !object => self.end(at, count),
                (_, at) => return Err(Error::NotJson(at)),
            }
        }
        Ok(None)
    }

    fn begin(&mut self, at: usize, object: bool) -> Result<(), Error> {
        if self.open.len() == DEPTH {
            return Err(Error::TooDeep(at));
        }
        self.open.push(Open { place: self.containers.len(), count: 0, object });
        self.containers.push(Container { start: at as u32, end: 0, next: 0, count: 0 });
        Ok(())
    }

    fn end(&mut self, at: usize, count: u32) {
        let (end, next) = (at as u32 + 1, self.containers.len() as u32);
        let place = self.open.pop().map(|open| open.place);
        if let Some(container) = place.and_then(|place| self.containers.get_mut(place)) {
            if end - container.start < SHORT {
                // All within it was short, too, and is gone: it is the last one.
                self.containers.pop();
            } else {
                *container = Container { end, next, count, ..*container };
            }
        }
    }
}

/// Whether a text begins with a whole number, `true`, `false` or `null`.
#[inline(always)]
fn scalar(text: &[u8]) -> bool {
    let rest = match text {
        [b't', b'r', b'u', b'e', rest @ ..] => rest,
        [b'n', b'u', b'l', b'l', rest @ ..] => rest,
        [b'f', b'a', b'l', b's', b'e', rest @ ..] => rest,
        _ => match number(text) {
            Some(rest) => rest,
            None => return false,
        },
    };
    matches!(rest, [] | [b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r', ..])
}

/// What follows a number by RFC 8259, `-? int frac? exp?`; `None` where there is none.
#[inline(always)]
fn number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let rest = match text {
        [b'0', rest @ ..] => rest,
        _ => digits(text)?,
    };
    let rest = match rest {
        [b'.', rest @ ..] => digits(rest)?,
        rest => rest,
    };
    match rest {
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => digits(rest),
        rest => Some(rest),
    }
}

/// What follows the digits here; `None` where there are none. Eight are looked at together: how many there are is
/// hard to foresee.
#[inline(always)]
fn digits(text: &[u8]) -> Option<&[u8]> {
    if let Some(word) = text.first_chunk() {
        let count = digits_in(*word);
        if count < 8 {
            return (count > 0).then(|| &text[count..]);
        }
    }
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| &text[count..])
}

/// How many digits eight bytes begin with.
#[inline(always)]
pub(crate) fn digits_in(bytes: [u8; 8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let values = u64::from_le_bytes(bytes) ^ (ONES * b'0' as u64);
    // The highest bit of each byte that is more than 9, and of some behind the first such.
    let others = (values.wrapping_add(ONES * (0x7f - 9)) | values) & (ONES << 7);
    others.trailing_zeros() as usize / 8
}
