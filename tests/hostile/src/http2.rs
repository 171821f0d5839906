//! HTTP/2 frame by frame (RFC 9113), with a client that can break every rule.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use testkit::with_timeout;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::ending::AttackEnding;
use crate::target::AttackTarget;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// SETTINGS_INITIAL_WINDOW_SIZE of 0: no response body can be sent.
pub(crate) const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

/// Encodes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes a literal field without indexing (RFC 7541, 6.2.2). Name and value are cut at 126 bytes.
pub(crate) fn encode_field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len().min(126)).unwrap_or_default();
    let cut = |text: &str| text.as_bytes().get(..126).unwrap_or(text.as_bytes()).to_vec();
    [vec![0, length(name)], cut(name), vec![length(value)], cut(value)].concat()
}

/// Encodes the fields of `GET path` and further fields.
pub(crate) fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    request_fields("GET", path, more)
}

/// Encodes the fields of a request and further fields.
pub(crate) fn request_fields(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    fields.iter().chain(more).flat_map(|(name, value)| encode_field(name, value)).collect()
}

/// A connection on which frames are sent and received.
pub(crate) struct FrameConnection(TcpStream);

impl FrameConnection {
    /// Connects, and sends the preface and these settings.
    pub(crate) async fn open(target: &AttackTarget, settings: &[u8]) -> Result<Self> {
        Self::handshake(target.connect().await?, settings).await
    }

    /// Connects from another address, so that its limits do not affect other cases, with a small receive
    /// buffer.
    pub(crate) async fn open_from(target: &AttackTarget, address: Ipv4Addr, settings: &[u8]) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4 << 10)?;
        socket.bind(SocketAddr::from((address, 0)))?;
        let stream = socket.connect(target.gateway.address).await?;
        stream.set_nodelay(true)?;
        Self::handshake(stream, settings).await
    }

    async fn handshake(mut stream: TcpStream, settings: &[u8]) -> Result<Self> {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await?;
        Ok(Self(stream))
    }

    /// Sends bytes. Returns whether the gateway accepted all of them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Returns kind, flags, stream and payload of the next frame, or `None` once the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        with_timeout("a frame", self.0.read_exact(&mut head)).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        with_timeout("a frame's payload", self.0.read_exact(&mut payload)).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    /// Returns how the gateway ends a stream, or the connection before it.
    pub(crate) async fn stream_ending(&mut self, stream: u32) -> AttackEnding {
        let (mut has_head, mut body) = (false, Vec::new());
        while let Some((kind, flags, of, payload)) = self.next().await {
            match kind {
                GOAWAY => return AttackEnding::GoAway(read_u32(&payload, 4)),
                RST_STREAM if of == stream => return AttackEnding::StreamReset(read_u32(&payload, 0)),
                HEADERS if of == stream => has_head = true,
                DATA if of == stream => body.extend_from_slice(&payload),
                _ => {}
            }
            if of == stream && has_head && flags & END_STREAM != 0 && matches!(kind, DATA | HEADERS) {
                return ending_of_body(&body);
            }
        }
        AttackEnding::Closed
    }

    /// Returns how the gateway ends the connection, ignoring frames of streams.
    pub(crate) async fn connection_ending(&mut self) -> AttackEnding {
        while let Some((kind, _, _, payload)) = self.next().await {
            if kind == GOAWAY {
                return AttackEnding::GoAway(read_u32(&payload, 4));
            }
        }
        AttackEnding::Closed
    }
}

/// The number of streams that [`reset_blocked_streams`] opens.
const UNTAKEN_STREAMS: u32 = 40;
/// The fewest of them that must exceed the budget of a connection, by the size of their answers.
const LEAST_RESETS: usize = 10;

/// Opens streams without a window for their answers, and returns the reset of those above the connection's
/// budget.
///
/// A stream is opened only after the one before was answered or reset, so that the gateway holds answers
/// rather than requests in flight.
pub(crate) async fn reset_blocked_streams(
    target: &AttackTarget,
    request: impl Fn(u32) -> Vec<u8>,
) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &NO_WINDOW).await?;
    let mut resets = Vec::new();
    for number in 0..UNTAKEN_STREAMS {
        let stream = number * 2 + 1;
        ensure!(connection.send(&request(stream)).await, "the connection has ended");
        loop {
            let (kind, _, of, payload) = connection.next().await.context("the connection has ended")?;
            match kind {
                GOAWAY => return Ok(AttackEnding::GoAway(read_u32(&payload, 4))),
                RST_STREAM => resets.push(read_u32(&payload, 0)),
                _ => {}
            }
            if of == stream && matches!(kind, HEADERS | RST_STREAM) {
                break;
            }
        }
    }
    // The first answers are within the budget.
    let is_expected = (LEAST_RESETS..UNTAKEN_STREAMS as usize).contains(&resets.len());
    ensure!(is_expected, "{} of {UNTAKEN_STREAMS} streams were reset", resets.len());
    resets.dedup();
    match resets.as_slice() {
        [code] => Ok(AttackEnding::StreamReset(*code)),
        codes => bail!("streams were reset with several codes: {codes:?}"),
    }
}

/// Returns the ending of an answer by its body, because its head is compressed: a problem document contains
/// its status.
fn ending_of_body(body: &[u8]) -> AttackEnding {
    let document = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let status = document["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    match (status, document["code"].as_str()) {
        (Some(status), Some(code)) => AttackEnding::Problem(status, code.to_owned().into()),
        _ => AttackEnding::Answer(200),
    }
}

/// Returns four bytes of a payload as a number.
pub(crate) fn read_u32(payload: &[u8], at: usize) -> u32 {
    payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(u32::MAX, u32::from_be_bytes)
}
