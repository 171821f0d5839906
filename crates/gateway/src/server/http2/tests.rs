//! Tests of a single HTTP/2 connection, in paused time.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::Instant;

use super::*;
use crate::tests::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, RawFrameConnection, SETTINGS, WINDOW_UPDATE,
    frame, request_head,
};

/// Returns the client's side of a connection whose requests are never answered.
async fn serve_pending() -> DuplexStream {
    let (mut ours, theirs) = duplex(1 << 16);
    let answer = |_, _| pending::<Response<LoggedBody>>();
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), ClientInfo::for_tests(), PhaseChange::never(), answer).await;
    });
    ours.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    ours.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    ours
}

#[tokio::test(start_paused = true)]
async fn pings_a_silent_client_and_closes_its_connection() {
    let begun = Instant::now();
    let mut peer = serve_pending().await;
    peer.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &request_head("GET", "/", &[])))
        .await
        .unwrap();
    while RawFrameConnection::from_stream(&mut peer).next_frame().await.is_some_and(|(kind, ..)| kind != PING)
    {
    }
    assert!(
        begun.elapsed() >= IDLE_TIMEOUT && begun.elapsed() < IDLE_TIMEOUT + PONG_TIMEOUT,
        "{:?}",
        begun.elapsed()
    );
    let _ = peer.read_to_end(&mut Vec::new()).await;
    assert!(begun.elapsed() <= IDLE_TIMEOUT + 2 * PONG_TIMEOUT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_of_clients_that_answer_pings() {
    let begun = Instant::now();
    let mut peer = serve_pending().await;
    peer.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &request_head("GET", "/", &[])))
        .await
        .unwrap();
    while begun.elapsed() < 100 * IDLE_TIMEOUT {
        let (kind, _, payload) =
            RawFrameConnection::from_stream(&mut peer).next_frame().await.expect("a connection that is open");
        if kind == PING {
            peer.write_all(&frame(PING, 1, 0, &payload)).await.unwrap();
        }
    }
}

/// A connection whose client has sent everything, and reads everything.
#[derive(Clone, Default)]
struct SentFrames {
    unread_bytes: Arc<Mutex<Bytes>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for SentFrames {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut unread = self.unread_bytes.lock().unwrap();
        if unread.is_empty() {
            return Poll::Pending;
        }
        let length = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SentFrames {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls a connection once whose client has sent these frames. Returns the number of bytes that were not
/// read, and the frames that were written.
async fn poll_once(frames: &[u8]) -> (usize, Vec<(u8, u32, Vec<u8>)>) {
    let stream = SentFrames::default();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    *stream.unread_bytes.lock().unwrap() =
        [&preface[..], &frame(SETTINGS, 0, 0, &[]), frames].concat().into();
    let answer = |_, _| pending::<Response<LoggedBody>>();
    let mut serving =
        pin!(serve(stream.clone(), Vec::new(), ClientInfo::for_tests(), PhaseChange::never(), answer));
    let is_pending = poll_fn(|context| Poll::Ready(serving.as_mut().poll(context).is_pending())).await;
    assert!(is_pending);
    let written = stream.written.lock().unwrap().clone();
    let (mut connection, mut sent) = (RawFrameConnection::from_stream(&written[..]), Vec::new());
    while let Some(frame) = connection.next_frame().await {
        sent.push(frame);
    }
    let unread = stream.unread_bytes.lock().unwrap().len();
    (unread, sent)
}

#[tokio::test]
async fn a_poll_reads_one_turn_however_many_requests_it_accepts() {
    let request = |number: u32, fields: &[(&str, &str)]| {
        frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &request_head("GET", "/", fields))
    };
    let value = "x".repeat(120);
    let fields = vec![("a", &*value); 60];
    let short = (0..50).flat_map(|number| request(number, &[]));
    let long = (50..100).flat_map(|number| request(number, &fields));
    let frames: Vec<u8> = short.chain(long).collect();
    let (unread, _) = poll_once(&frames).await;
    assert!(frames.len() > 300 << 10);
    assert!(frames.len() - unread < 40 << 10, "{unread} of {} bytes are left", frames.len());
}

#[tokio::test]
async fn a_poll_takes_over_few_changes_of_settings() {
    let changes = [[0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 0, 1]].map(|settings| frame(SETTINGS, 0, 0, &settings));
    let (_, sent) = poll_once(&changes.concat().repeat(100)).await;
    let acknowledged =
        sent.iter().filter(|(kind, _, payload)| *kind == SETTINGS && payload.is_empty()).count();
    assert!((1..20).contains(&acknowledged), "{acknowledged}");
}

#[tokio::test]
async fn treats_many_cancelled_requests_as_a_flood() {
    let traffic = Arc::new(FrameCounts::default());
    for _ in 0..300 {
        traffic.begin_request(None).note_answered();
    }
    for _ in 0..300 {
        traffic.begin_request(None).note_reset();
    }
    assert!(!traffic.is_flood(), "as many were answered");
    traffic.begin_request(None).note_reset();
    assert!(traffic.is_flood());
    assert_eq!(traffic.snapshot().in_flight, 0);
}

#[test]
fn ends_a_connection_with_a_large_table_in_two_steps() {
    let traffic = FrameCounts::default();
    for (retained, verdict) in [
        (traffic::MAX_RETAINED / 3, (false, false)),
        (traffic::MAX_RETAINED / 3 + 1, (true, false)),
        (traffic::MAX_RETAINED, (true, false)),
        (traffic::MAX_RETAINED + 1, (true, true)),
    ] {
        traffic.note_read(frames::ScannedFrames {
            retained_bytes: retained,
            ..frames::ScannedFrames::default()
        });
        assert_eq!((traffic.exceeds_memory(), traffic.is_flood()), verdict, "{retained}");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_connections_whose_table_keeps_long_heads() {
    // Indexed fields, an authority, `:path` with incremental indexing, and the length of 16,000 bytes of a
    // field (RFC 7541, sections 5.1, 6.1 and 6.2).
    let fields = [0x82, 0x86, 0x01, 1, b'a', 0x44, 1, b'/', 0, 1, b'x', 0x7f, 0x81, 0x7c];
    let head = [&fields[..], &[b'x'; 16_000]].concat();
    let mut peer = serve_pending().await;
    for number in 0..300 {
        let request = frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &head);
        if peer.write_all(&request).await.is_err() {
            break;
        }
    }
    // NO_ERROR, and then ENHANCE_YOUR_CALM (RFC 9113, section 7).
    assert_eq!(goaway_codes(&mut peer).await, [0, 11]);
}

/// Reads to the end of the connection. Returns the error codes of its GOAWAY frames.
async fn goaway_codes(peer: &mut DuplexStream) -> Vec<u32> {
    let mut codes = Vec::new();
    while let Some((kind, _, payload)) = RawFrameConnection::from_stream(&mut *peer).next_frame().await {
        if kind == GOAWAY {
            codes.push(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
    codes
}

#[tokio::test(start_paused = true)]
async fn cancels_the_handler_when_the_stream_is_reset() {
    let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
    let dropped = Mutex::new(Some(dropped));
    let (mut peer, theirs) = duplex(1 << 16);
    let answer = move |_, _| {
        let dropped = dropped.lock().unwrap().take();
        async move {
            let response = pending::<Response<LoggedBody>>().await;
            drop(dropped);
            response
        }
    };
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), ClientInfo::for_tests(), PhaseChange::never(), answer).await;
    });
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &request_head("GET", "/", &[]));
    let frames = [frame(SETTINGS, 0, 0, &[]), request].concat();
    peer.write_all(&frames).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    peer.write_all(&frame(RESET, 0, 1, &8_u32.to_be_bytes())).await.unwrap();
    assert!(is_dropped.await.is_err());
}

/// The maximum payload of a DATA frame, by default.
const PIECE: usize = 16 << 10;
/// The error for a client that sends more than a window has room for.
const FLOW_CONTROL_ERROR: u32 = 3;

/// Returns the client's side of a connection whose bodies are never read, except those of PUT, once both
/// sides have received each other's settings.
async fn serve_unread() -> DuplexStream {
    const ACK: u8 = 1;
    let (mut peer, theirs) = duplex(1 << 16);
    let answer = |request: Request<StreamedServiceBody>, _| async move {
        let is_read = request.method() == Method::PUT;
        let mut body = request.into_body();
        while is_read && matches!(body.frame().await, Some(Ok(_))) {}
        pending::<Response<LoggedBody>>().await
    };
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), ClientInfo::for_tests(), PhaseChange::never(), answer).await;
    });
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    peer.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    // The window update of the connection follows the settings.
    while RawFrameConnection::from_stream(&mut peer)
        .next_frame()
        .await
        .is_some_and(|(kind, ..)| kind != WINDOW_UPDATE)
    {}
    peer.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
    peer
}

/// Starts a request, and sends as much of its body as its window has room for.
async fn fill_window(peer: &mut DuplexStream, stream: u32) {
    peer.write_all(&frame(HEADERS, END_HEADERS, stream, &request_head("POST", "/", &[]))).await.unwrap();
    for _ in 0..STREAM_WINDOW as usize / PIECE {
        peer.write_all(&frame(DATA, 0, stream, &[b'x'; PIECE])).await.unwrap();
    }
}

/// Waits until the other side has read everything that was sent, and has reset nothing.
async fn wait_until_read(peer: &mut DuplexStream) {
    peer.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    loop {
        match RawFrameConnection::from_stream(&mut *peer)
            .next_frame()
            .await
            .expect("a connection that is open")
        {
            (PING, ..) => return,
            (kind, ..) => assert!(kind != RESET && kind != GOAWAY, "the windows are not used up"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_an_unread_body_only_up_to_the_stream_window() {
    let mut peer = serve_unread().await;
    fill_window(&mut peer, 1).await;
    wait_until_read(&mut peer).await;
    peer.write_all(&frame(DATA, 0, 1, b"x")).await.unwrap();
    let reason = loop {
        match RawFrameConnection::from_stream(&mut peer)
            .next_frame()
            .await
            .expect("a connection that is open")
        {
            (RESET, 1, reason) => break reason,
            (kind, ..) => assert_ne!(kind, GOAWAY),
        }
    };
    assert_eq!(reason, FLOW_CONTROL_ERROR.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn accepts_unread_bodies_only_up_to_the_connection_window() {
    let mut peer = serve_unread().await;
    let streams = CONNECTION_WINDOW / STREAM_WINDOW;
    for number in 0..streams {
        fill_window(&mut peer, 2 * number + 1).await;
    }
    wait_until_read(&mut peer).await;
    let next = 2 * streams + 1;
    let head = frame(HEADERS, END_HEADERS, next, &request_head("POST", "/", &[]));
    peer.write_all(&[head, frame(DATA, 0, next, b"x")].concat()).await.unwrap();
    let farewell = loop {
        if let (GOAWAY, _, farewell) =
            RawFrameConnection::from_stream(&mut peer).next_frame().await.expect("a GOAWAY before the end")
        {
            break farewell;
        }
    };
    assert_eq!(farewell[4..8], FLOW_CONTROL_ERROR.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn ends_connections_with_many_unread_frames_in_two_steps() {
    let mut peer = serve_unread().await;
    for (method, stream) in [("POST", 1), ("PUT", 3)] {
        peer.write_all(&frame(HEADERS, END_HEADERS, stream, &request_head(method, "/", &[]))).await.unwrap();
    }
    // A long frame refills h2's budget for 63 short ones, on whichever stream it arrives.
    let short = frame(DATA, 0, 1, b"x").repeat(63);
    let frames = [short, frame(DATA, 0, 3, &[b'x'; PIECE])].concat();
    for _ in 0..2_000 {
        if peer.write_all(&frames).await.is_err() {
            break;
        }
    }
    // NO_ERROR, and then ENHANCE_YOUR_CALM (RFC 9113, section 7).
    assert_eq!(goaway_codes(&mut peer).await, [0, 11]);
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_whose_windows_are_full_of_short_frames() {
    const SHORT: usize = 200;
    let mut peer = serve_unread().await;
    for number in 0..CONNECTION_WINDOW / STREAM_WINDOW {
        let stream = 2 * number + 1;
        peer.write_all(&frame(HEADERS, END_HEADERS, stream, &request_head("POST", "/", &[]))).await.unwrap();
        let count = STREAM_WINDOW as usize / SHORT;
        peer.write_all(&frame(DATA, 0, stream, &[b'x'; SHORT]).repeat(count)).await.unwrap();
    }
    wait_until_read(&mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_whose_frames_are_read() {
    let mut peer = serve_unread().await;
    peer.write_all(&frame(HEADERS, END_HEADERS, 1, &request_head("PUT", "/", &[]))).await.unwrap();
    for _ in 0..100 {
        peer.write_all(&frame(DATA, 0, 1, b"x").repeat(100)).await.unwrap();
        wait_until_read(&mut peer).await;
    }
}
