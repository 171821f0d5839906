//! The scanner under [`crate::pointer()`]: a position in a text, and the ways to move it forwards.

use crate::Error;

/// Deeper nesting is refused: the checker recurses.
const DEPTH: usize = 512;

/// Whether the whole text is one JSON value (RFC 8259).
#[must_use]
pub fn valid(text: &[u8]) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.space();
    scanner.value(0).is_ok() && {
        scanner.space();
        scanner.position() == text.len() && std::str::from_utf8(text).is_ok()
    }
}

/// A position in a text. The whole text is never walked twice.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn error(&self) -> Error {
        Error::NotJson(self.at)
    }

    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(self.error());
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// `true` if a comma follows, `false` at the closing bracket, which is passed.
    fn more(&mut self, close: u8) -> Result<bool, Error> {
        self.space();
        let next = self.peek();
        self.at += 1;
        self.space();
        match next {
            Some(b',') => Ok(true),
            Some(byte) if byte == close => Ok(false),
            _ => Err(Error::NotJson(self.at - 1)),
        }
    }

    /// Moves to the value of the member `name` of the object here. Of equal names the first counts.
    pub(crate) fn enter_member(&mut self, name: &str) -> Result<bool, Error> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            return Ok(false);
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            if same(key, name) {
                return Ok(true);
            }
            self.skip_value()?;
            if !self.more(b'}')? {
                return Ok(false);
            }
        }
    }

    /// Moves to the item number `index` of the array here.
    pub(crate) fn enter_item(&mut self, index: usize) -> Result<bool, Error> {
        self.expect(b'[')?;
        if self.peek() == Some(b']') {
            return Ok(false);
        }
        for _ in 0..index {
            self.skip_value()?;
            if !self.more(b']')? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes a value. Inside of brackets only strings and brackets are looked at.
    pub(crate) fn skip_value(&mut self) -> Result<(), Error> {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') if depth > 0 => self.at += 1,
                Some(_) => self.scalar()?,
                None => return Err(self.error()),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Passes a string and returns what stands between its quotes.
    fn string(&mut self) -> Result<&'a [u8], Error> {
        if self.peek() != Some(b'"') {
            return Err(self.error());
        }
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return Err(self.error()),
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at - 1])
    }

    /// Passes a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<(), Error> {
        let rest = &self.text[self.at..];
        let end =
            rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'));
        let word = &rest[..end.unwrap_or(rest.len())];
        if !matches!(word, b"true" | b"false" | b"null") && !number(word) {
            return Err(self.error());
        }
        self.at += word.len();
        Ok(())
    }

    /// Passes a value and checks all of its grammar.
    fn value(&mut self, depth: usize) -> Result<(), Error> {
        match self.peek() {
            _ if depth > DEPTH => Err(self.error()),
            Some(b'{') => self.members(depth),
            Some(b'[') => self.items(depth),
            Some(b'"') => self.checked_string(),
            Some(_) => self.scalar(),
            None => Err(self.error()),
        }
    }

    fn members(&mut self, depth: usize) -> Result<(), Error> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.checked_string()?;
            self.expect(b':')?;
            self.value(depth + 1)?;
            if !self.more(b'}')? {
                return Ok(());
            }
        }
    }

    fn items(&mut self, depth: usize) -> Result<(), Error> {
        self.expect(b'[')?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if !self.more(b']')? {
                return Ok(());
            }
        }
    }

    fn checked_string(&mut self) -> Result<(), Error> {
        let string = self.string()?;
        let mut bytes = string.iter();
        while let Some(byte) = bytes.next() {
            if *byte == b'\\' && !escape(&mut bytes) {
                return Err(self.error());
            }
        }
        Ok(())
    }
}

fn escape(bytes: &mut std::slice::Iter<'_, u8>) -> bool {
    match bytes.next() {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
        Some(b'u') => (0..4).all(|_| bytes.next().is_some_and(u8::is_ascii_hexdigit)),
        _ => false,
    }
}

/// Whether a word is a number by RFC 8259: `-? int frac? exp?`.
fn number(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"-").unwrap_or(word);
    let (int, rest) = digits(word);
    let rest = match rest {
        [b'.', rest @ ..] => match digits(rest) {
            ([], _) => return false,
            (_, rest) => rest,
        },
        rest => rest,
    };
    let exponent = match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => {
            matches!(digits(rest), ([_, ..], []))
        }
        _ => false,
    };
    exponent && (int == b"0" || (!int.is_empty() && int[0] != b'0'))
}

fn digits(word: &[u8]) -> (&[u8], &[u8]) {
    word.split_at(word.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Whether a string's raw text means `name`.
fn same(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes()
        || (raw.contains(&b'\\') && {
            let quoted = [b"\"", raw, b"\""].concat();
            serde_json::from_slice::<String>(&quoted).is_ok_and(|text| text == name)
        })
}
