//! Validation of a text that arrives in pieces and is passed on before it is complete. It covers the whole
//! grammar (RFC 8259), with memory proportional to the nesting depth.

use crate::Error;
use crate::index::DEPTH;

/// The state of validation of a partial text.
#[derive(Clone, Debug)]
pub struct Checker {
    state: State,
    /// The open containers: whether each is an object.
    open: Vec<bool>,
    /// The number of bytes so far.
    seen: usize,
    /// The number of missing continuation bytes of a character, and the bounds of the next one.
    more: u8,
    bounds: (u8, u8),
}

/// The expected continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an array that has just begun.
    FirstItem,
    /// A name, or the end of an object that has just begun.
    FirstName,
    Name,
    Colon,
    /// A comma, or the end of the container; at the top level only the end of the text.
    Behind,
    /// The rest of a string, and whether it is a name.
    String(bool),
    Escape(bool),
    /// The given number of hexadecimal digits.
    Hex(bool, u8),
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// The position within a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Dot,
    Fraction,
    E,
    Sign,
    Power,
}

impl Default for Checker {
    fn default() -> Self {
        Self { state: State::Value, open: Vec::new(), seen: 0, more: 0, bounds: (0x80, 0xbf) }
    }
}

impl Checker {
    /// Checks the next piece.
    ///
    /// # Errors
    /// If no JSON text begins like this, or if the text is nested too deeply. The checker must not be used
    /// afterwards.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Error> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            let is_plain = |byte: &u8| matches!(byte, 0x20..0x80) && !matches!(byte, b'"' | b'\\');
            if matches!(self.state, State::String(_)) && self.more == 0 && is_plain(&byte) {
                at += piece[at..].iter().take_while(|byte| is_plain(byte)).count();
                continue;
            }
            self.state = self.next(byte).map_err(|error| match error {
                Error::NotJson(_) => Error::NotJson(self.seen + at),
                Error::TooDeep(_) => Error::TooDeep(self.seen + at),
                other => other,
            })?;
            at += 1;
        }
        self.seen += piece.len();
        Ok(())
    }

    /// Checks whether the text is complete.
    ///
    /// # Errors
    /// If something is missing.
    pub fn end(&self) -> Result<(), Error> {
        let is_value = match self.state {
            State::Behind => true,
            State::Number(number) => number.may_end(),
            _ => false,
        };
        if is_value && self.open.is_empty() { Ok(()) } else { Err(Error::NotJson(self.seen)) }
    }

    fn next(&mut self, byte: u8) -> Result<State, Error> {
        let wrong = Err(Error::NotJson(0));
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            State::String(is_name) => return self.inside(byte, is_name),
            State::Escape(is_name) => {
                return match byte {
                    b'u' => Ok(State::Hex(is_name, 4)),
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(State::String(is_name)),
                    _ => wrong,
                };
            }
            State::Hex(is_name, digits) => {
                return match (byte.is_ascii_hexdigit(), digits) {
                    (false, _) => wrong,
                    (true, 1) => Ok(State::String(is_name)),
                    (true, digits) => Ok(State::Hex(is_name, digits - 1)),
                };
            }
            State::Word(rest) => {
                return match rest {
                    [last] if *last == byte => Ok(State::Behind),
                    [first, rest @ ..] if *first == byte => Ok(State::Word(rest)),
                    _ => wrong,
                };
            }
            State::Number(number) => match number.next(byte) {
                Some(next) => return Ok(State::Number(next)),
                None if !number.may_end() => return wrong,
                None => {}
            },
            state if is_space => return Ok(state),
            _ => {}
        }
        match (self.state, byte) {
            (State::Number(_), _) if is_space => Ok(State::Behind),
            (State::Number(_) | State::Behind, b',') => match self.open.last() {
                Some(true) => Ok(State::Name),
                Some(false) => Ok(State::Value),
                None => wrong,
            },
            (State::Number(_) | State::Behind, b']') | (State::FirstItem, b']') => self.close(false),
            (State::Number(_) | State::Behind, b'}') | (State::FirstName, b'}') => self.close(true),
            (State::Value | State::FirstItem, _) => self.value(byte),
            (State::Name | State::FirstName, b'"') => Ok(State::String(true)),
            (State::Colon, b':') => Ok(State::Value),
            _ => wrong,
        }
    }

    fn value(&mut self, byte: u8) -> Result<State, Error> {
        match byte {
            b'{' | b'[' if self.open.len() == DEPTH => Err(Error::TooDeep(0)),
            b'{' => {
                self.open.push(true);
                Ok(State::FirstName)
            }
            b'[' => {
                self.open.push(false);
                Ok(State::FirstItem)
            }
            b'"' => Ok(State::String(false)),
            b't' => Ok(State::Word(b"rue")),
            b'f' => Ok(State::Word(b"alse")),
            b'n' => Ok(State::Word(b"ull")),
            b'-' => Ok(State::Number(Number::Minus)),
            b'0' => Ok(State::Number(Number::Zero)),
            b'1'..=b'9' => Ok(State::Number(Number::Whole)),
            _ => Err(Error::NotJson(0)),
        }
    }

    fn close(&mut self, is_object: bool) -> Result<State, Error> {
        if self.open.pop() == Some(is_object) { Ok(State::Behind) } else { Err(Error::NotJson(0)) }
    }

    /// Processes a byte of a string: UTF-8 according to the table in RFC 3629.
    fn inside(&mut self, byte: u8, is_name: bool) -> Result<State, Error> {
        let stay = State::String(is_name);
        if self.more > 0 {
            let (least, most) = std::mem::replace(&mut self.bounds, (0x80, 0xbf));
            self.more -= 1;
            return if (least..=most).contains(&byte) { Ok(stay) } else { Err(Error::NotJson(0)) };
        }
        (self.more, self.bounds) = match byte {
            b'"' => return Ok(if is_name { State::Colon } else { State::Behind }),
            b'\\' => return Ok(State::Escape(is_name)),
            0x20..0x80 => return Ok(stay),
            0xc2..=0xdf => (1, (0x80, 0xbf)),
            0xe0 => (2, (0xa0, 0xbf)),
            0xed => (2, (0x80, 0x9f)),
            0xe1..=0xef => (2, (0x80, 0xbf)),
            0xf0 => (3, (0x90, 0xbf)),
            0xf1..=0xf3 => (3, (0x80, 0xbf)),
            0xf4 => (3, (0x80, 0x8f)),
            _ => return Err(Error::NotJson(0)),
        };
        Ok(stay)
    }
}

impl Number {
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Dot,
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::Sign,
            (Self::E | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::Power)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::Document;

    fn check(text: &[u8], piece: usize) -> Result<(), Error> {
        let mut checker = Checker::default();
        text.chunks(piece).try_for_each(|piece| checker.feed(piece))?;
        checker.end()
    }

    #[test]
    fn piece_size_does_not_affect_validation() {
        for text in [
            "1",
            "-0.5e+10 ",
            r#"{"a":[1,{}],"é😀\ud800":null}"#,
            "[]",
            " \"\" ",
            "[true,false]",
            "{\"a\":-1}",
        ] {
            (1..8).for_each(|piece| assert_eq!(check(text.as_bytes(), piece), Ok(()), "{text}"));
        }
        for text in [
            "",
            "01",
            "1.",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "[1}",
            "tru",
            "\"\\x\"",
            "1 2",
            "\"",
            "-",
            "[",
            "\u{feff}1",
        ] {
            (1..8).for_each(|piece| assert!(check(text.as_bytes(), piece).is_err(), "{text}"));
        }
        assert_eq!(check(&vec![b'['; DEPTH + 1], 7), Err(Error::TooDeep(DEPTH)));
    }

    proptest! {
        #[test]
        fn validation_in_pieces_agrees_with_validation_of_the_whole(
            text in prop::collection::vec(prop_oneof![
                prop::sample::select(vec!["{", "}", "[", "]", ",", ":", "\"", "\"a\"", "1", "-2.5e3", "null", " ", "\\u00e9", "é"])
                    .prop_map(|word| word.as_bytes().to_vec()),
                any::<u8>().prop_map(|byte| vec![byte]),
            ], 0..12),
            piece in 1..9_usize,
        ) {
            let text = text.concat();
            prop_assume!(!text.starts_with(b"\xef\xbb\xbf"));
            let known = Document::new(Bytes::from(text.clone())).is_ok();
            prop_assert_eq!(check(&text, piece).is_ok(), known, "{}", String::from_utf8_lossy(&text));
        }
    }
}
