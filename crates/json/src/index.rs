//! The index of a text: where its longer containers begin and end. Making it checks the whole grammar
//! (RFC 8259), so that everything else may take the text for what it is.

use crate::Error;
use crate::block::{self, BLOCK, Block, Bytes, Carry};

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

/// The containers of a text in their order.
pub(crate) fn index(text: &[u8]) -> Result<Vec<Container>, Error> {
    if u32::try_from(text.len()).is_err() {
        return Err(Error::TooLong);
    }
    std::str::from_utf8(text).map_err(|error| Error::NotJson(error.valid_up_to()))?;
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
        #[expect(unsafe_code, reason = "what a machine has is known at run time")]
        // SAFETY: this machine has AVX2 and BMI1.
        return unsafe { read_avx2(text) };
    }
    read(text, block::portable)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn read_avx2(text: &[u8]) -> Result<Vec<Container>, Error> {
    read(text, |block| block::avx2(block))
}

/// The same for any machine. Inlined, so that it is compiled once for each kind of machine.
#[inline(always)]
pub(crate) fn read(text: &[u8], classify: impl Fn(&[u8; BLOCK]) -> Bytes) -> Result<Vec<Container>, Error> {
    let mut carry = Carry::default();
    let mut reader = Reader::new(text);
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    for (number, block) in blocks.iter().enumerate() {
        reader.block(number * BLOCK, carry.next(classify(block)))?;
    }
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    reader.block(blocks.len() * BLOCK, carry.next(classify(&last)))?;
    if carry.in_string() || reader.state != State::End {
        return Err(Error::NotJson(text.len()));
    }
    Ok(reader.containers)
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// The document's value.
    Root,
    /// Nothing more.
    End,
    /// A name, or the end of an object that has no members.
    FirstName,
    Name,
    Colon,
    Member,
    AfterMember,
    /// An item, or the end of an array that has none.
    FirstItem,
    Item,
    AfterItem,
    /// No token may stand here.
    Wrong,
}

use State::{AfterItem, AfterMember, Colon, End, FirstItem, FirstName, Item, Member, Name, Root, Wrong};

/// What follows a value in each state; `Wrong` where none may stand.
const AFTER_VALUE: [State; 11] =
    [End, Wrong, Wrong, Wrong, Wrong, AfterMember, Wrong, AfterItem, AfterItem, Wrong, Wrong];
/// The same for a string, which may be a name.
const AFTER_STRING: [State; 11] =
    [End, Wrong, Colon, Colon, Wrong, AfterMember, Wrong, AfterItem, AfterItem, Wrong, Wrong];

/// An open container.
#[derive(Debug)]
struct Open {
    /// Its place in the index.
    place: u32,
    /// The state behind it.
    after: State,
    /// The commas of the container around it.
    commas: u32,
}

struct Reader<'a> {
    text: &'a [u8],
    state: State,
    /// In the container that is open.
    commas: u32,
    open: Vec<Open>,
    containers: Vec<Container>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        let containers = Vec::with_capacity(text.len() / 256);
        Self { text, state: Root, commas: 0, open: Vec::with_capacity(16), containers }
    }

    #[inline(always)]
    fn block(&mut self, base: usize, block: Block) -> Result<(), Error> {
        if block.forbidden != 0 {
            return Err(Error::NotJson(base + block.forbidden.trailing_zeros() as usize));
        }
        for at in bits(block.escapes) {
            self.escape(base + at)?;
        }
        for at in bits(block.tokens) {
            self.token(base + at)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn token(&mut self, at: usize) -> Result<(), Error> {
        let state = self.state as usize;
        let next = match self.text.get(at) {
            Some(b'"') => AFTER_STRING[state],
            Some(b':') if self.state == Colon => Member,
            Some(b',') => {
                self.commas += 1;
                match self.state {
                    AfterMember => Name,
                    AfterItem => Item,
                    _ => Wrong,
                }
            }
            Some(b'{') => self.opened(at, AFTER_VALUE[state], FirstName)?,
            Some(b'[') => self.opened(at, AFTER_VALUE[state], FirstItem)?,
            Some(b'}') if matches!(self.state, FirstName | AfterMember) => self.closed(at),
            Some(b']') if matches!(self.state, FirstItem | AfterItem) => self.closed(at),
            Some(_) if scalar(&self.text[at..]) => AFTER_VALUE[state],
            // Behind the end only space is classified, but the text is what counts.
            _ => Wrong,
        };
        self.state = next;
        if next == Wrong { Err(Error::NotJson(at)) } else { Ok(()) }
    }

    fn opened(&mut self, at: usize, after: State, next: State) -> Result<State, Error> {
        if self.open.len() == DEPTH {
            return Err(Error::TooDeep(at));
        }
        self.open.push(Open { place: self.containers.len() as u32, after, commas: self.commas });
        self.commas = 0;
        self.containers.push(Container { start: at as u32, end: 0, next: 0, count: 0 });
        Ok(if after == Wrong { Wrong } else { next })
    }

    fn closed(&mut self, at: usize) -> State {
        let Some(Open { place, after, commas }) = self.open.pop() else { return Wrong };
        let end = at as u32 + 1;
        let empty = matches!(self.state, FirstName | FirstItem);
        let count = if empty { 0 } else { self.commas + 1 };
        self.commas = commas;
        let next = self.containers.len() as u32;
        if let Some(container) = self.containers.get_mut(place as usize) {
            if end - container.start < SHORT {
                // All within it was short, too, and is gone: it is the last one.
                self.containers.pop();
            } else {
                *container = Container { end, next, count, ..*container };
            }
        }
        after
    }

    fn escape(&self, at: usize) -> Result<(), Error> {
        let good = match self.text.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
            Some(b'u') => {
                let digits = self.text.get(at + 2..at + 6);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            _ => false,
        };
        if good { Ok(()) } else { Err(Error::NotJson(at)) }
    }
}

/// The places of the ones.
#[inline(always)]
fn bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(at)
    })
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

/// What follows the digits here; `None` where there are none.
#[inline(always)]
fn digits(text: &[u8]) -> Option<&[u8]> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| &text[count..])
}
