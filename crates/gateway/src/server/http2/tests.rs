//! Tests of a single HTTP/2 connection, in paused time.

use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;

use super::*;
use crate::tests::frames::{
    Connection as Frames, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, SETTINGS,
    WINDOW_UPDATE, frame, head_of,
};

/// Returns the client's side of a connection whose requests are never answered.
async fn unanswered() -> DuplexStream {
    let (mut ours, theirs) = duplex(1 << 16);
    let answer = |_, _| pending::<Response<Logged>>();
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), Client::for_tests(), Awaited::never(), answer).await;
    });
    ours.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    ours.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    ours
}

#[tokio::test(start_paused = true)]
async fn pings_a_silent_client_and_closes_its_connection() {
    let begun = Instant::now();
    let mut peer = unanswered().await;
    peer.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head_of("GET", "/", &[]))).await.unwrap();
    while Frames::of(&mut peer).next().await.is_some_and(|(kind, ..)| kind != PING) {}
    assert!(begun.elapsed() >= IDLE && begun.elapsed() < IDLE + PONG, "{:?}", begun.elapsed());
    let _ = peer.read_to_end(&mut Vec::new()).await;
    assert!(begun.elapsed() <= IDLE + 2 * PONG, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_of_clients_that_answer_pings() {
    let begun = Instant::now();
    let mut peer = unanswered().await;
    peer.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head_of("GET", "/", &[]))).await.unwrap();
    while begun.elapsed() < 100 * IDLE {
        let (kind, _, payload) = Frames::of(&mut peer).next().await.expect("a connection that is open");
        if kind == PING {
            peer.write_all(&frame(PING, 1, 0, &payload)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_connection_yields_after_reading_its_share() {
    let traffic = Traffic::default();
    traffic.begin_turn();
    let turn = (0..).take_while(|_| traffic.may_read()).inspect(|_| traffic.note_read(8 << 10)).count();
    assert_eq!(turn, 2);
    assert!(traffic.may_read(), "its next turn");
}

#[tokio::test]
async fn treats_many_cancelled_requests_as_a_flood() {
    let traffic = Arc::new(Traffic::default());
    for _ in 0..300 {
        traffic.begin_request(None).note_answered();
    }
    for _ in 0..300 {
        traffic.begin_request(None).note_reset();
    }
    assert!(!traffic.is_flood(), "as many were answered");
    traffic.begin_request(None).note_reset();
    assert!(traffic.is_flood());
    assert_eq!(traffic.seen().under_way, 0);
}

#[tokio::test(start_paused = true)]
async fn cancels_the_handler_when_the_stream_is_reset() {
    let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
    let dropped = std::sync::Mutex::new(Some(dropped));
    let (mut peer, theirs) = duplex(1 << 16);
    let answer = move |_, _| {
        let dropped = dropped.lock().unwrap().take();
        async move {
            let response = pending::<Response<Logged>>().await;
            drop(dropped);
            response
        }
    };
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), Client::for_tests(), Awaited::never(), answer).await;
    });
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &head_of("GET", "/", &[]));
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

/// Returns the client's side of a connection whose bodies are never read, once both sides have received each
/// other's settings.
async fn unread() -> DuplexStream {
    const ACK: u8 = 1;
    let (mut peer, theirs) = duplex(1 << 16);
    let answer = |request: Request<Body>, _| async move {
        let _request = request;
        pending::<Response<Logged>>().await
    };
    tokio::spawn(async move {
        let _ = serve(theirs, Vec::new(), Client::for_tests(), Awaited::never(), answer).await;
    });
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    peer.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    // The window update of the connection follows the settings.
    while Frames::of(&mut peer).next().await.is_some_and(|(kind, ..)| kind != WINDOW_UPDATE) {}
    peer.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
    peer
}

/// Starts a request, and sends as much of its body as its window has room for.
async fn fill(peer: &mut DuplexStream, stream: u32) {
    peer.write_all(&frame(HEADERS, END_HEADERS, stream, &head_of("POST", "/", &[]))).await.unwrap();
    for _ in 0..STREAM_WINDOW as usize / PIECE {
        peer.write_all(&frame(DATA, 0, stream, &[b'x'; PIECE])).await.unwrap();
    }
}

/// Waits until the other side has read everything that was sent, and has reset nothing.
async fn is_taken(peer: &mut DuplexStream) {
    peer.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    loop {
        match Frames::of(&mut *peer).next().await.expect("a connection that is open") {
            (PING, ..) => return,
            (kind, ..) => assert!(kind != RESET && kind != GOAWAY, "the windows are not used up"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_an_unread_body_only_up_to_the_stream_window() {
    let mut peer = unread().await;
    fill(&mut peer, 1).await;
    is_taken(&mut peer).await;
    peer.write_all(&frame(DATA, 0, 1, b"x")).await.unwrap();
    let reason = loop {
        match Frames::of(&mut peer).next().await.expect("a connection that is open") {
            (RESET, 1, reason) => break reason,
            (kind, ..) => assert_ne!(kind, GOAWAY),
        }
    };
    assert_eq!(reason, FLOW_CONTROL_ERROR.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn accepts_unread_bodies_only_up_to_the_connection_window() {
    let mut peer = unread().await;
    let streams = CONNECTION_WINDOW / STREAM_WINDOW;
    for number in 0..streams {
        fill(&mut peer, 2 * number + 1).await;
    }
    is_taken(&mut peer).await;
    let next = 2 * streams + 1;
    let head = frame(HEADERS, END_HEADERS, next, &head_of("POST", "/", &[]));
    peer.write_all(&[head, frame(DATA, 0, next, b"x")].concat()).await.unwrap();
    let farewell = loop {
        if let (GOAWAY, _, farewell) = Frames::of(&mut peer).next().await.expect("a GOAWAY before the end") {
            break farewell;
        }
    };
    assert_eq!(farewell[4..8], FLOW_CONTROL_ERROR.to_be_bytes());
}
