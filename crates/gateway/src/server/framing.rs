//! Where requests of HTTP/1.1 begin and end (RFC 9112, section 6), seen from outside of the library that
//! reads them.
//!
//! That library forgives: it takes a bare line feed for the end of a line, and of a length and a coding it
//! believes the coding. Another reader before the gateway may believe the other, and then a client's bytes
//! become somebody else's request. This follows the same bytes and notes the first request that could be
//! read in two ways, which is refused when it comes. What the library refuses itself is left to it.

/// How much of a line that came in pieces is kept: the largest head.
const MAX_LINE: usize = 64 << 10;

/// Follows the bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// How many heads have begun.
    begun: u32,
    /// The first request, counted from 1, that could be read in two ways.
    doubtful: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing of the next request is there.
    #[default]
    Between,
    /// After the request line.
    Head(Lengths),
    /// So much of a body is still to come.
    Body(u64),
    /// The line with a chunk's size.
    ChunkSize,
    /// So much of a chunk is still to come.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    /// Nobody knows where the next request begins.
    Lost,
}

/// What a head has said so far of the length of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    length: Option<u64>,
    is_chunked: bool,
}

impl Framing {
    /// The next bytes.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Lost => return,
                State::Body(left) => self.skip(bytes, left, State::Body, State::Between),
                State::Chunk(left) => self.skip(bytes, left, State::Chunk, State::ChunkEnd),
                _ => self.take_line(bytes),
            };
        }
    }

    /// Whether a request's head has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.state, State::Head(_)) || self.state == State::Between && !self.line.is_empty()
    }

    /// The first request, counted from 1, that could be read in two ways.
    pub(super) fn doubtful(&self) -> Option<u32> {
        self.doubtful
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, more: fn(u64) -> State, then: State) -> &'a [u8] {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - length as u64;
        self.state = if left == 0 { then } else { more(left) };
        &bytes[length..]
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            if self.line.len() > MAX_LINE {
                self.doubt();
            }
            return &[];
        };
        let (line, rest) = bytes.split_at(end);
        if self.line.is_empty() {
            self.end_line(line);
        } else {
            self.line.extend_from_slice(line);
            let line = std::mem::take(&mut self.line);
            self.end_line(&line);
        }
        &rest[1..]
    }

    /// A line without its line feed.
    fn end_line(&mut self, line: &[u8]) {
        let Some((b'\r', line)) = line.split_last() else { return self.doubt() };
        if line.contains(&b'\r') {
            return self.doubt();
        }
        self.state = match (self.state, line) {
            // Empty lines before a request are passed over (RFC 9112, section 2.2).
            (State::Between, []) => State::Between,
            (State::Between, _) => {
                self.begun += 1;
                State::Head(Lengths::default())
            }
            (State::Head(lengths), []) => lengths.body(),
            (State::Head(mut lengths), line) => match lengths.read(line) {
                Some(()) => State::Head(lengths),
                None => return self.doubt(),
            },
            (State::ChunkSize, line) => match chunk_size(line) {
                Some(0) => State::Trailers,
                Some(size) => State::Chunk(size),
                None => return self.doubt(),
            },
            (State::ChunkEnd, []) => State::ChunkSize,
            (State::ChunkEnd, _) => return self.doubt(),
            (State::Trailers, []) => State::Between,
            (state, _) => state,
        };
    }

    /// The request whose head this is can't be trusted, or the one after the body that this is.
    fn doubt(&mut self) {
        let is_in_head = matches!(self.state, State::Head(_));
        self.doubtful = Some(if is_in_head { self.begun } else { self.begun.saturating_add(1) });
        self.state = State::Lost;
        self.line = Vec::new();
    }
}

impl Lengths {
    /// A line of the head; `None` where it contradicts another, or says what not everybody understands.
    fn read(&mut self, line: &[u8]) -> Option<()> {
        // Only these two matter, and their names are as long as few others are.
        if !matches!(line.get(14), Some(b':' | b' ' | b'\t')) && line.get(17) != Some(&b':') {
            return Some(());
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value, 10)?;
            let is_new = !self.is_chunked && self.length.is_none_or(|before| before == length);
            self.length = Some(length);
            is_new.then_some(())
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_new = !self.is_chunked && self.length.is_none();
            self.is_chunked = true;
            (is_new && value.eq_ignore_ascii_case(b"chunked")).then_some(())
        } else {
            Some(())
        }
    }

    /// What comes after the head.
    fn body(self) -> State {
        match self {
            Self { is_chunked: true, .. } => State::ChunkSize,
            Self { length: None | Some(0), .. } => State::Between,
            Self { length: Some(length), .. } => State::Body(length),
        }
    }
}

/// The size in a chunk's first line, before its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next()?;
    number(size.trim_ascii_end(), 16)
}

/// Digits and nothing else.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests;
