//! HTTP/2 connections as clients open them: frames that mostly follow RFC 9113, header blocks of RFC 7541,
//! and mistakes and floods that servers have been vulnerable to.

use std::time::Duration;

use crate::ByteChoices;

/// The connection preface of a client (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
pub mod kind {
    #![expect(missing_docs, reason = "the specification's names")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY_FLAG: u8 = 0x20;
/// The maximum number of bytes of one step.
const MAX_STEP_LENGTH: usize = 1 << 20;

/// A step of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Pauses for a while.
    Pause(Duration),
    /// Stops reading.
    StopReading,
    /// Resumes reading.
    ResumeReading,
}

/// The client's side of a connection.
#[derive(Clone, Debug, Default)]
pub struct ClientScript {
    /// The steps in order.
    pub steps: Vec<ClientStep>,
    /// The upper limit of the flow-control window that the client has opened for the whole connection, in
    /// bytes (RFC 9113, section 6.9.1).
    pub window: u64,
    /// The highest stream that it has opened.
    pub last_stream: u32,
}

/// Generates the steps of a client, with requests for these paths.
#[must_use]
pub fn script(choices: &mut ByteChoices<'_>, paths: &[&str]) -> ClientScript {
    let mut writer = FrameGenerator {
        script: ClientScript { window: 65_535, ..ClientScript::default() },
        next_stream: 1,
        last_bytes: Vec::new(),
    };
    let mut begun = match choices.one_in(32) {
        true => choices.bytes(64).to_vec(),
        false => PREFACE.to_vec(),
    };
    if !choices.one_in(32) {
        begun.extend(settings_frame(choices));
    }
    writer.script.steps.push(ClientStep::Send(begun));
    for _ in 0..choices.number_below(24) {
        writer.add_step(choices, paths);
    }
    writer.script
}

struct FrameGenerator {
    script: ClientScript,
    /// The next stream that has not been opened.
    next_stream: u32,
    /// The bytes sent last.
    last_bytes: Vec<u8>,
}

impl FrameGenerator {
    fn add_step(&mut self, choices: &mut ByteChoices<'_>, paths: &[&str]) {
        let step = match choices.number_below(16) {
            0 => ClientStep::Pause(Duration::from_millis(1 << choices.number_below(18))),
            1 if choices.one_in(4) => ClientStep::StopReading,
            1 => ClientStep::ResumeReading,
            2 => self.repeat_last(choices),
            3..8 => self.generate_request(choices, paths),
            _ => {
                self.last_bytes = self.any_frame(choices);
                ClientStep::Send(self.last_bytes.clone())
            }
        };
        self.script.steps.push(step);
    }

    /// Repeats the bytes sent last many times.
    fn repeat_last(&mut self, choices: &mut ByteChoices<'_>) -> ClientStep {
        let times = (1 << choices.number_below(15)).min(MAX_STEP_LENGTH / self.last_bytes.len().max(1));
        if self.last_bytes.get(3) == Some(&kind::WINDOW_UPDATE) {
            self.script.window = u64::MAX;
        }
        ClientStep::Send(self.last_bytes.repeat(times))
    }

    /// A request, mostly on a new stream, with a complete, partial or no body.
    fn generate_request(&mut self, choices: &mut ByteChoices<'_>, paths: &[&str]) -> ClientStep {
        let stream = match choices.number_below(12) {
            0 => self.any_stream(choices),
            1 => {
                self.next_stream += 2 * choices.any_number().min(1 << 20);
                self.open_stream()
            }
            _ => self.open_stream(),
        };
        let block = request_block(choices, paths);
        let has_body = choices.one_in(2);
        let mut sent = header_frames(choices, stream, &block, !has_body);
        if has_body {
            for _ in 0..choices.number_below(3) {
                sent.extend(data_frame(choices, stream));
            }
            if choices.one_in(4) {
                // Trailers.
                sent.extend(header_frames(choices, stream, &encode_field("x-end", "1"), true));
            }
        }
        self.last_bytes = sent.clone();
        ClientStep::Send(sent)
    }

    fn open_stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream = self.next_stream.saturating_add(2);
        self.script.last_stream = self.script.last_stream.max(stream);
        stream
    }

    /// A stream that may be open, closed, never opened, of the server, or the connection itself.
    fn any_stream(&mut self, choices: &mut ByteChoices<'_>) -> u32 {
        let stream = match choices.number_below(8) {
            0 => 0,
            1 => choices.any_number(),
            2 => 2,
            _ => 1 + 2 * choices.number_below(self.next_stream as usize / 2 + 1).min(1 << 16) as u32,
        };
        self.script.last_stream = self.script.last_stream.max(stream & 0x7fff_ffff);
        stream
    }

    fn any_frame(&mut self, choices: &mut ByteChoices<'_>) -> Vec<u8> {
        let stream = self.any_stream(choices);
        match choices.number_below(12) {
            0 => settings_frame(choices),
            1 => encode_frame(kind::SETTINGS, ACK, 0, &[]),
            2 => encode_frame(kind::PING, choices.byte() & ACK, 0, &[choices.byte(); 8]),
            3 => encode_frame(kind::RST_STREAM, 0, stream, &choices.any_number().to_be_bytes()),
            4 | 5 => {
                let increment = choices.any_number();
                if stream & 0x7fff_ffff == 0 {
                    self.script.window = self.script.window.saturating_add(increment.into());
                }
                encode_frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
            }
            6 => data_frame(choices, stream),
            7 => encode_frame(kind::PRIORITY, 0, stream, &[0, 0, 0, choices.byte(), 16]),
            8 => {
                let last = [choices.any_number().to_be_bytes(), choices.any_number().to_be_bytes()].concat();
                encode_frame(kind::GOAWAY, 0, stream & u32::from(choices.one_in(8)), &last)
            }
            9 => {
                let is_last = choices.one_in(2);
                header_frames(choices, stream, &encode_field("x-late", "1"), is_last)
            }
            10 => {
                // Any frame. The window counts as opened regardless of its type.
                self.script.window = u64::MAX;
                let (kind, flags) = (choices.byte() % 12, choices.byte());
                self.script.last_stream = u32::MAX;
                encode_frame(kind, flags, stream, choices.bytes(64))
            }
            _ => {
                self.script.window = u64::MAX;
                self.script.last_stream = u32::MAX;
                choices.bytes(32).to_vec()
            }
        }
    }
}

/// Encodes a frame.
#[must_use]
pub fn encode_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn settings_frame(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..choices.number_below(4) {
        // Table size, push, streams, window, frame size, header list size, one of RFC 8441, and an unknown
        // one.
        let name = choices.pick(&[1_u16, 2, 3, 4, 4, 5, 6, 8, 0xaaaa]);
        let value = match choices.number_below(4) {
            0 => 0,
            1 => 16_384,
            2 => 65_535,
            _ => choices.any_number(),
        };
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    encode_frame(kind::SETTINGS, 0, 0, &payload)
}

fn data_frame(choices: &mut ByteChoices<'_>, stream: u32) -> Vec<u8> {
    let length = match choices.number_below(6) {
        0 => 0,
        1 => 16_384,
        2 => 16_385,
        _ => choices.number_below(300),
    };
    let is_last = u8::from(choices.one_in(2)) * END_STREAM;
    let mut payload = vec![choices.byte(); length];
    if choices.one_in(8) {
        // The padding is sometimes longer than its frame.
        payload.insert(0, choices.byte());
        return encode_frame(kind::DATA, is_last | PADDED, stream, &payload);
    }
    encode_frame(kind::DATA, is_last, stream, &payload)
}

/// A header block as one frame, or continued in further ones.
fn header_frames(choices: &mut ByteChoices<'_>, stream: u32, block: &[u8], is_last: bool) -> Vec<u8> {
    let mut flags = u8::from(is_last) * END_STREAM;
    let mut payload = Vec::new();
    if choices.one_in(16) {
        flags |= PADDED;
        payload.push(choices.byte() % 4);
    }
    if choices.one_in(16) {
        flags |= PRIORITY_FLAG;
        payload.extend([&choices.any_number().to_be_bytes()[..], &[7]].concat());
    }
    payload.extend(block);
    if flags & PADDED != 0 {
        payload.extend(vec![0; usize::from(payload[0])]);
    }
    if block.len() < 16_000 && !choices.one_in(8) {
        return encode_frame(kind::HEADERS, flags | END_HEADERS, stream, &payload);
    }
    let pieces: Vec<&[u8]> = payload.chunks(1 + choices.number_below(16_384)).take(64).collect();
    let mut frames = Vec::new();
    for (place, piece) in pieces.iter().enumerate() {
        let is_end = place + 1 == pieces.len() && !choices.one_in(16);
        let end = u8::from(is_end) * END_HEADERS;
        frames.extend(match place {
            0 => encode_frame(kind::HEADERS, flags | end, stream, piece),
            _ => encode_frame(kind::CONTINUATION, end, stream, piece),
        });
    }
    frames
}

/// A literal field without indexing (RFC 7541, section 6.2.2).
#[must_use]
pub fn encode_field(name: &str, value: &str) -> Vec<u8> {
    literal_field(0, name.as_bytes(), value.as_bytes())
}

/// A literal field: form 0 is without indexing, 0x40 with indexing, 0x10 never indexed.
fn literal_field(form: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![form];
    for text in [name, value] {
        out.extend(encode_integer(0, 7, text.len()));
        out.extend(text);
    }
    out
}

/// An integer with a prefix of this many bits (RFC 7541, section 5.1).
fn encode_integer(first: u8, bits: u32, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![first | value as u8];
    }
    let mut out = vec![first | most as u8];
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

/// The header block of a request.
fn request_block(choices: &mut ByteChoices<'_>, paths: &[&str]) -> Vec<u8> {
    let mut fields = vec![
        // GET, POST, or another method.
        match choices.number_below(4) {
            0 => literal_field(
                0x40,
                b":method",
                choices.pick(&["HEAD", "OPTIONS", "CONNECT", "PUT", "", "G T"]).as_bytes(),
            ),
            1 => vec![0x82],
            _ => vec![0x83],
        },
        vec![if choices.one_in(8) { 0x87 } else { 0x86 }],
        literal_field(
            choices.pick(&[0, 0x40, 0x10]),
            b":authority",
            choices.pick(&["a", "a:80", "", "[::1]", "b@c"]).as_bytes(),
        ),
        literal_field(choices.pick(&[0, 0x40]), b":path", request_path(choices, paths).as_bytes()),
    ];
    match choices.number_below(24) {
        0 => drop(fields.remove(choices.number_below(4))),
        1 => fields.push(fields[choices.number_below(4)].clone()),
        2 => fields.swap(choices.number_below(4), 0),
        3 => fields.insert(0, encode_field("x-early", "1")),
        _ => {}
    }
    let mut out = fields.concat();
    for _ in 0..choices.number_below(5) {
        out.extend(extra_field(choices));
    }
    out
}

fn request_path(choices: &mut ByteChoices<'_>, paths: &[&str]) -> String {
    let path = choices.pick(paths);
    match choices.number_below(12) {
        0 => format!("{path}?{}", "x".repeat(1 << choices.number_below(13))),
        1 => choices.pick(&["*", "", "//b/c", "/%2e%2e/", "/\u{e9}", "a"]).to_string(),
        _ => path.to_owned(),
    }
}

fn extra_field(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    match choices.number_below(12) {
        // An index into the static or the dynamic table, or an invalid one.
        0 => encode_integer(0x80, 7, choices.number_below(128)),
        1 => encode_integer(0x80, 7, choices.any_number() as usize),
        // A size update of the dynamic table.
        2 => encode_integer(0x20, 5, choices.any_number() as usize),
        3 => {
            let (name, times) = (choices.number_below(62) as u8 & 0x3f, 1 << choices.number_below(13));
            [&[0x40 | name][..], &encode_integer(0, 7, times), &vec![b'x'; times]].concat()
        }
        // Huffman-coded text, mostly invalid.
        4 => {
            let text = choices.bytes(24);
            [&[0x40, 1, b'h'][..], &encode_integer(0x80, 7, text.len()), text].concat()
        }
        5 => {
            let times = 1 << choices.number_below(11);
            encode_field("a", "b").repeat(times)
        }
        6 => {
            let length = choices.pick(&["0", "5", "300", "18446744073709551615", "-1", "5, 5"]);
            encode_field("content-length", length)
        }
        _ => {
            let fields = [
                ("te", "trailers"),
                ("te", "gzip"),
                ("connection", "close"),
                ("upgrade", "h2c"),
                ("transfer-encoding", "chunked"),
                ("cookie", "a=b"),
                ("host", "a"),
                ("host", "b"),
                ("expect", "100-continue"),
                ("content-type", "text/javascript"),
                ("content-type", "application/wasm"),
                ("content-encoding", "gzip"),
                ("orfa-input", "3"),
                ("orfa-limit", "cpu=1"),
                ("origin", "http://a"),
                ("x-forwarded-for", "10.0.0.1"),
                ("forwarded", "for=a"),
                ("Upper", "case"),
                ("a b", "c"),
                ("", "b"),
                ("a", "b\r\nc: d"),
                (":unknown", "b"),
                ("accept-encoding", "gzip;q=0.5, zstd"),
                ("range", "bytes=0-"),
                ("if-none-match", "*"),
            ];
            let (name, value) = choices.pick(&fields);
            literal_field(choices.pick(&[0, 0x40, 0x10]), name.as_bytes(), value.as_bytes())
        }
    }
}
