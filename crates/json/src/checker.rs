//! Validation of a text that arrives in pieces and is passed on before it is complete. It covers the whole
//! grammar (RFC 8259), with memory proportional to the nesting depth.

use crate::error::{DEPTH, JsonError};

/// The state of validation of a partial text.
#[derive(Clone, Debug)]
pub struct PartialChecker {
    state: CheckerState,
    /// The open containers: whether each is an object.
    open_containers: Vec<bool>,
    /// The number of bytes so far.
    consumed_bytes: usize,
    /// The number of missing continuation bytes of a character, and the bounds of the next one.
    missing_bytes: u8,
    bounds: (u8, u8),
}

/// The expected continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckerState {
    Value,
    /// A value, or the end of an array that has just begun.
    FirstItem,
    /// A name, or the end of an object that has just begun.
    FirstName,
    Name,
    Colon,
    /// A comma, or the end of the container; at the top level only the end of the text.
    AfterValue,
    /// The rest of a string, and whether it is a name.
    String(bool),
    Escape(bool),
    /// The given number of hexadecimal digits.
    Hex(bool, u8),
    Number(NumberPosition),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
}

/// The position within a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberPosition {
    Minus,
    Zero,
    Integer,
    Dot,
    Fraction,
    ExponentMark,
    ExponentSign,
    ExponentDigits,
}

impl Default for PartialChecker {
    fn default() -> Self {
        Self {
            state: CheckerState::Value,
            open_containers: Vec::new(),
            consumed_bytes: 0,
            missing_bytes: 0,
            bounds: (0x80, 0xbf),
        }
    }
}

impl PartialChecker {
    /// Checks the next piece.
    ///
    /// # Errors
    /// If no JSON text begins like this, or if the text is nested too deeply. The checker must not be used
    /// afterwards.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), JsonError> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            let is_plain = |byte: &u8| matches!(byte, 0x20..0x80) && !matches!(byte, b'"' | b'\\');
            if matches!(self.state, CheckerState::String(_)) && self.missing_bytes == 0 && is_plain(&byte) {
                at += piece[at..].iter().take_while(|byte| is_plain(byte)).count();
                continue;
            }
            self.state = self.next_state(byte).map_err(|error| match error {
                JsonError::NotJson(_) => JsonError::NotJson(self.consumed_bytes + at),
                JsonError::TooDeep(_) => JsonError::TooDeep(self.consumed_bytes + at),
                other => other,
            })?;
            at += 1;
        }
        self.consumed_bytes += piece.len();
        Ok(())
    }

    /// Checks whether the text is complete.
    ///
    /// # Errors
    /// If something is missing.
    pub fn finish(&self) -> Result<(), JsonError> {
        let is_value = match self.state {
            CheckerState::AfterValue => true,
            CheckerState::Number(number) => number.can_end(),
            _ => false,
        };
        if is_value && self.open_containers.is_empty() {
            Ok(())
        } else {
            Err(JsonError::NotJson(self.consumed_bytes))
        }
    }

    fn next_state(&mut self, byte: u8) -> Result<CheckerState, JsonError> {
        let wrong = Err(JsonError::NotJson(0));
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            CheckerState::String(is_name) => return self.next_in_string(byte, is_name),
            CheckerState::Escape(is_name) => {
                return match byte {
                    b'u' => Ok(CheckerState::Hex(is_name, 4)),
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                        Ok(CheckerState::String(is_name))
                    }
                    _ => wrong,
                };
            }
            CheckerState::Hex(is_name, digits) => {
                return match (byte.is_ascii_hexdigit(), digits) {
                    (false, _) => wrong,
                    (true, 1) => Ok(CheckerState::String(is_name)),
                    (true, digits) => Ok(CheckerState::Hex(is_name, digits - 1)),
                };
            }
            CheckerState::Literal(rest) => {
                return match rest {
                    [last] if *last == byte => Ok(CheckerState::AfterValue),
                    [first, rest @ ..] if *first == byte => Ok(CheckerState::Literal(rest)),
                    _ => wrong,
                };
            }
            CheckerState::Number(number) => match number.next_position(byte) {
                Some(next) => return Ok(CheckerState::Number(next)),
                None if !number.can_end() => return wrong,
                None => {}
            },
            state if is_space => return Ok(state),
            _ => {}
        }
        match (self.state, byte) {
            (CheckerState::Number(_), _) if is_space => Ok(CheckerState::AfterValue),
            (CheckerState::Number(_) | CheckerState::AfterValue, b',') => match self.open_containers.last() {
                Some(true) => Ok(CheckerState::Name),
                Some(false) => Ok(CheckerState::Value),
                None => wrong,
            },
            (CheckerState::Number(_) | CheckerState::AfterValue, b']') | (CheckerState::FirstItem, b']') => {
                self.close_container(false)
            }
            (CheckerState::Number(_) | CheckerState::AfterValue, b'}') | (CheckerState::FirstName, b'}') => {
                self.close_container(true)
            }
            (CheckerState::Value | CheckerState::FirstItem, _) => self.begin_value(byte),
            (CheckerState::Name | CheckerState::FirstName, b'"') => Ok(CheckerState::String(true)),
            (CheckerState::Colon, b':') => Ok(CheckerState::Value),
            _ => wrong,
        }
    }

    fn begin_value(&mut self, byte: u8) -> Result<CheckerState, JsonError> {
        match byte {
            b'{' | b'[' if self.open_containers.len() == DEPTH => Err(JsonError::TooDeep(0)),
            b'{' => {
                self.open_containers.push(true);
                Ok(CheckerState::FirstName)
            }
            b'[' => {
                self.open_containers.push(false);
                Ok(CheckerState::FirstItem)
            }
            b'"' => Ok(CheckerState::String(false)),
            b't' => Ok(CheckerState::Literal(b"rue")),
            b'f' => Ok(CheckerState::Literal(b"alse")),
            b'n' => Ok(CheckerState::Literal(b"ull")),
            b'-' => Ok(CheckerState::Number(NumberPosition::Minus)),
            b'0' => Ok(CheckerState::Number(NumberPosition::Zero)),
            b'1'..=b'9' => Ok(CheckerState::Number(NumberPosition::Integer)),
            _ => Err(JsonError::NotJson(0)),
        }
    }

    fn close_container(&mut self, is_object: bool) -> Result<CheckerState, JsonError> {
        if self.open_containers.pop() == Some(is_object) {
            Ok(CheckerState::AfterValue)
        } else {
            Err(JsonError::NotJson(0))
        }
    }

    /// Processes a byte of a string: UTF-8 according to the table in RFC 3629.
    fn next_in_string(&mut self, byte: u8, is_name: bool) -> Result<CheckerState, JsonError> {
        let stay = CheckerState::String(is_name);
        if self.missing_bytes > 0 {
            let (least, most) = std::mem::replace(&mut self.bounds, (0x80, 0xbf));
            self.missing_bytes -= 1;
            return if (least..=most).contains(&byte) { Ok(stay) } else { Err(JsonError::NotJson(0)) };
        }
        (self.missing_bytes, self.bounds) = match byte {
            b'"' => return Ok(if is_name { CheckerState::Colon } else { CheckerState::AfterValue }),
            b'\\' => return Ok(CheckerState::Escape(is_name)),
            0x20..0x80 => return Ok(stay),
            0xc2..=0xdf => (1, (0x80, 0xbf)),
            0xe0 => (2, (0xa0, 0xbf)),
            0xed => (2, (0x80, 0x9f)),
            0xe1..=0xef => (2, (0x80, 0xbf)),
            0xf0 => (3, (0x90, 0xbf)),
            0xf1..=0xf3 => (3, (0x80, 0xbf)),
            0xf4 => (3, (0x80, 0x8f)),
            _ => return Err(JsonError::NotJson(0)),
        };
        Ok(stay)
    }
}

impl NumberPosition {
    fn next_position(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Dot,
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::ExponentMark,
            (Self::ExponentMark, b'+' | b'-') => Self::ExponentSign,
            (Self::ExponentMark | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    fn can_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::document::JsonDocument;

    fn check_in_pieces(text: &[u8], piece: usize) -> Result<(), JsonError> {
        let mut checker = PartialChecker::default();
        text.chunks(piece).try_for_each(|piece| checker.feed(piece))?;
        checker.finish()
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
            (1..8).for_each(|piece| assert_eq!(check_in_pieces(text.as_bytes(), piece), Ok(()), "{text}"));
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
            (1..8).for_each(|piece| assert!(check_in_pieces(text.as_bytes(), piece).is_err(), "{text}"));
        }
        assert_eq!(check_in_pieces(&vec![b'['; DEPTH + 1], 7), Err(JsonError::TooDeep(DEPTH)));
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
            let known = JsonDocument::new(Bytes::from(text.clone())).is_ok();
            prop_assert_eq!(check_in_pieces(&text, piece).is_ok(), known, "{}", String::from_utf8_lossy(&text));
        }
    }
}
