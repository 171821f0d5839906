//! Tests of request parsing, with input split in any way, and of the responses.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use http::{HeaderMap, Method, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use services::body::full;
use services::headers::MAX_MEMBERS;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;

use super::*;
use crate::config::ConnectionsConfig;

const GOOD: &str = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &str =
    "POST /b HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nA: b\r\n\r\n";
const LAST: &str = "GET /last HTTP/1.1\r\nconnection: close\r\n\r\n";

/// A request as the handler received it: its path, whether it is doubtful, and its body if all of it arrived.
type HandledRequest = (String, bool, Option<Vec<u8>>);

/// The result of sending requests on a connection.
struct ConnectionTranscript {
    requests: Vec<HandledRequest>,
    /// All bytes of the responses.
    responses: String,
}

/// Serves a connection with this handler in a task.
fn serve_with<F, B>(
    answer: impl FnMut(Request<StreamedServiceBody>, ClientInfo) -> F + Send + 'static,
) -> DuplexStream
where
    F: Future<Output = Response<B>> + Send,
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + Send + 'static,
{
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(async move {
        serve(theirs, &[], ClientInfo::for_tests(), PhaseChange::never(), answer, || true).await
    });
    ours
}

/// Sends pieces, and reads until the connection ends.
async fn run_connection(pieces: &[&[u8]]) -> ConnectionTranscript {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&requests);
    let mut peer = serve_with(move |request: Request<StreamedServiceBody>, client: ClientInfo| {
        let note = Arc::clone(&note);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            note.lock().unwrap().push((head.uri.to_string(), client.has_ambiguous_framing, body));
            Response::new(full(head.uri.to_string()))
        }
    });
    let mut responses = String::new();
    for piece in pieces {
        // The other side may have closed the connection.
        let _ = peer.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let _ = peer.shutdown().await;
    let _ = peer.read_to_string(&mut responses).await;
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    ConnectionTranscript { requests, responses }
}

/// Sends a request whose handler returns this response, and reads until the connection ends.
async fn exchange(request: &str, response: Response<StreamedServiceBody>) -> String {
    let mut response = Some(response);
    let mut peer = serve_with(move |_, _| std::future::ready(response.take().unwrap()));
    peer.write_all(request.as_bytes()).await.unwrap();
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    responses
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn hello_request(path: &str) -> HandledRequest {
    (path.to_owned(), false, Some(b"hello".to_vec()))
}

#[tokio::test]
async fn separates_consecutive_requests() {
    let several = format!("{GOOD}\r\n{CHUNKED}{GOOD}{LAST}{GOOD}");
    let ConnectionTranscript { requests, responses } = run_connection(&[several.as_bytes()]).await;
    assert_eq!(
        requests,
        [
            hello_request("/a"),
            hello_request("/b"),
            hello_request("/a"),
            ("/last".to_owned(), false, Some(vec![]))
        ]
    );
    assert_eq!(responses.matches("HTTP/1.1 200 OK\r\n").count(), 4, "{responses}");
}

#[tokio::test]
async fn rejects_more_connection_options_than_are_read() {
    let with = |options: usize| {
        let options = "a,".repeat(options - 1) + "close";
        format!("GET /many HTTP/1.1\r\nConnection: {options}\r\n\r\n{GOOD}")
    };
    let ConnectionTranscript { requests, .. } = run_connection(&[with(MAX_MEMBERS).as_bytes()]).await;
    assert_eq!(
        requests,
        [("/many".to_owned(), false, Some(vec![]))],
        "the last option closes the connection"
    );
    let ConnectionTranscript { requests, responses } =
        run_connection(&[with(MAX_MEMBERS + 1).as_bytes()]).await;
    assert!(requests.is_empty() && responses.starts_with("HTTP/1.1 400 "), "{responses}");
    assert!(responses.contains("request-malformed"), "{responses}");
}

#[tokio::test]
async fn marks_ambiguous_requests_and_ends_the_connection() {
    for head in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: ",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: \"chunked\"",
        "A: b\nContent-Length: 5",
    ] {
        let request = format!("{GOOD}POST /odd HTTP/1.1\r\n{head}\r\n\r\n{GOOD}");
        let requests = run_connection(&[request.as_bytes()]).await.requests;
        assert_eq!(requests, [hello_request("/a"), ("/odd".to_owned(), true, Some(vec![]))], "{head:?}");
    }
    let old = "POST /odd HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(run_connection(&[old.as_bytes()]).await.requests, [("/odd".to_owned(), true, Some(vec![]))]);
}

#[tokio::test]
async fn answers_invalid_http_without_calling_the_handler() {
    let large = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(70_000));
    let endless = "x".repeat(70_000);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    for (text, status, code) in [
        ("POST / HTTP/1.1\r\nA: b\rContent-Length: 5\r\n\r\n", 400, "request-malformed"),
        ("POST / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400, "request-malformed"),
        ("POST / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", 400, "request-malformed"),
        ("GET / HTTP/2.0\r\n\r\n", 400, "request-malformed"),
        ("GET\r\n\r\n", 400, "request-malformed"),
        ("GET no-path HTTP/1.1\r\n\r\n", 400, "request-malformed"),
        (large.as_str(), 431, "head-too-large"),
        (endless.as_str(), 431, "head-too-large"),
        (many.as_str(), 431, "head-too-large"),
    ] {
        let ConnectionTranscript { requests, responses } = run_connection(&[text.as_bytes()]).await;
        assert!(requests.is_empty(), "{requests:?}");
        assert!(responses.starts_with(&format!("HTTP/1.1 {status} ")), "{responses}");
        assert!(responses.contains("connection: close\r\n") && responses.contains(code), "{responses}");
    }
}

#[tokio::test]
async fn skips_a_bounded_number_of_empty_lines_before_each_request() {
    let lines = "\r\n".repeat(8);
    let several = format!("{lines}{GOOD}{lines}{LAST}");
    for pieces in [vec![several.as_bytes()], several.as_bytes().chunks(3).collect()] {
        let requests = run_connection(&pieces).await.requests;
        assert_eq!(requests, [hello_request("/a"), ("/last".to_owned(), false, Some(vec![]))]);
    }
    for lines in ["\r\n".repeat(100_000), format!("\r\n{lines}{GOOD}")] {
        let ConnectionTranscript { requests, responses } = run_connection(&[lines.as_bytes()]).await;
        assert!(requests.is_empty(), "{requests:?}");
        assert!(
            responses.starts_with("HTTP/1.1 400 ") && responses.contains("request-malformed"),
            "{responses}"
        );
    }
}

/// Returns chunked bodies that are refused at their end, because two parsers could disagree on them.
pub(crate) fn refused_chunks() -> Vec<String> {
    let fields = "a: b\r\n".repeat(65);
    let large = format!("a: {}\r\n", "b".repeat(17_000));
    let trailers = [
        "no field\r\n",
        "a b: c\r\n",
        "a : b\r\n",
        ": b\r\n",
        "a: b\r\n c\r\n",
        " a: b\r\n",
        "a: \0\r\n",
        "a: b\n",
        "a: b\rc: d\r\n",
        "GET /admin/x HTTP/1.1\r\n",
        "\u{e9}: b\r\n",
        &fields,
        &large,
    ];
    let sizes = [
        "x\r\n",
        "\r\n",
        "5\nhello\r\n0\r\n",
        "5\r\nhello!\r\n0\r\n",
        "-1\r\n",
        "0 0\r\n",
        "fffffffffffffffff\r\n",
        "5;\0\x01\r\nhello\r\n0\r\n",
    ];
    let bad_trailers = trailers.iter().map(|trailers| format!("5\r\nhello\r\n0\r\n{trailers}\r\n"));
    let bare = ["0\r\na: b\n\n", "0\r\n\na: b\r\n\r\n", "0\n\n"].map(str::to_owned);
    bad_trailers.chain(sizes.map(|size| format!("{size}\r\n"))).chain(bare).collect()
}

#[tokio::test]
async fn never_reads_on_after_a_refused_chunked_body() {
    for body in refused_chunks() {
        let request = format!("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}{GOOD}");
        let pieces: Vec<&[u8]> = request.as_bytes().chunks(7).collect();
        for pieces in [vec![request.as_bytes()], pieces] {
            let ConnectionTranscript { requests, responses } = run_connection(&pieces).await;
            assert_eq!(requests, [("/x".to_owned(), false, None)], "{body:?}");
            assert_eq!(responses.matches("HTTP/1.1 200 OK\r\n").count(), 1, "{body:?}: {responses}");
        }
    }
}

#[tokio::test]
async fn never_reads_on_after_a_refused_body_that_was_not_read() {
    for body in refused_chunks() {
        let mut peer = serve_with(|_, _| std::future::ready(Response::new(full("x"))));
        let request = format!("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}{GOOD}");
        peer.write_all(request.as_bytes()).await.unwrap();
        let mut responses = String::new();
        peer.read_to_string(&mut responses).await.unwrap();
        assert_eq!(responses.matches("HTTP/1.1 200 OK\r\n").count(), 1, "{body:?}: {responses}");
    }
}

#[tokio::test]
async fn announces_close_if_the_body_is_not_read() {
    let chunks = [999, 1001].map(|count| "1\r\nx\r\n".repeat(count));
    let [few, many] = chunks.map(|chunks| format!("Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
    for (body, stays) in [
        (few.as_str(), true),
        (many.as_str(), false),
        ("Content-Length: 5\r\n\r\nhello", true),
        ("Content-Length: 50000\r\n\r\nhello", false),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhel", false),
        ("Transfer-Encoding: chunked\r\n\r\nx\r\n", false),
    ] {
        let mut peer = serve_with(|_, _| std::future::ready(Response::new(full("early"))));
        peer.write_all(format!("POST /x HTTP/1.1\r\n{body}").as_bytes()).await.unwrap();
        let mut responses = Vec::new();
        while !responses.ends_with(b"early") {
            assert!(peer.read_buf(&mut responses).await.unwrap() > 0, "{body:?}");
        }
        let responses = String::from_utf8(responses).unwrap();
        assert_eq!(!responses.contains("connection: close\r\n"), stays, "{body:?}: {responses}");
    }
}

proptest! {
    #[test]
    fn parses_the_same_for_any_split_of_the_bytes(cuts in prop::collection::vec(0_usize..400, 0..8), broken: bool) {
        let end = if broken { "Content-Length: 1\r\nTransfer-Encoding: chunked" } else { "A: b" };
        let text = format!("{GOOD}{CHUNKED}{GOOD}GET /x HTTP/1.1\r\n{end}\r\n\r\n{CHUNKED}");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        let (cut, transcript) = block_on(async { (run_connection(&pieces).await, run_connection(&[text.as_bytes()]).await) });
        prop_assert_eq!(&cut.requests, &transcript.requests);
        prop_assert_eq!(transcript.requests.len(), if broken { 4 } else { 5 });
        prop_assert_eq!(transcript.requests[3].1, broken);
    }
}

#[tokio::test]
async fn every_response_has_a_framing() {
    let length = || Response::builder().header("content-length", "7").body(full("")).unwrap();
    let status = |status| Response::builder().status(status).body(full("")).unwrap();
    let reset = || Response::builder().status(205).header("content-length", "3").body(full("abc")).unwrap();
    let stream = || {
        let frames = [Ok(http_body::Frame::data(Bytes::from("a"))), Ok(http_body::Frame::data("bc".into()))];
        StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
    };
    for (request, response, has, end) in [
        ("GET / HTTP/1.1", Response::new(full("abc")), "content-length: 3\r\n", "\r\n\r\nabc"),
        ("HEAD / HTTP/1.1", length(), "content-length: 7\r\n", "\r\n\r\n"),
        ("HEAD / HTTP/1.1", Response::new(full("abc")), "content-length: 3\r\n", "\r\n\r\n"),
        ("GET / HTTP/1.1", status(204), "204 No Content\r\ndate: ", "\r\n\r\n"),
        ("GET / HTTP/1.1", status(304), "304 Not Modified\r\ndate: ", "\r\n\r\n"),
        ("GET / HTTP/1.1", reset(), "content-length: 0\r\n", "\r\n\r\n"),
        ("HEAD / HTTP/1.1", reset(), "content-length: 0\r\n", "\r\n\r\n"),
        ("GET / HTTP/1.1", status(200), "content-length: 0\r\n", "\r\n\r\n"),
        (
            "GET / HTTP/1.1",
            Response::new(stream()),
            "transfer-encoding: chunked\r\n",
            "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        ),
        ("GET / HTTP/1.0", Response::new(stream()), "connection: close\r\n", "\r\n\r\nabc"),
    ] {
        let responses = exchange(&format!("{request}\r\nconnection: close\r\n\r\n"), response).await;
        assert!(responses.contains(has) && responses.ends_with(end), "{request}: {responses}");
        let lengths =
            responses.matches("content-length").count() + responses.matches("transfer-encoding").count();
        assert!(lengths <= 1 && responses.matches("date: ").count() == 1, "{request}: {responses}");
    }
    let responses = exchange("HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n", Response::new(stream())).await;
    assert!(!responses.contains("content-length") && !responses.contains("transfer-encoding"), "{responses}");
}

#[tokio::test]
async fn sends_trailers_only_to_clients_that_accept_them() {
    let response = || {
        let trailers = HeaderMap::from_iter([("sum", "1"), ("other", "2")].map(|(name, value)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse::<http::HeaderValue>().unwrap())
        }));
        let frames = [Ok(http_body::Frame::data(Bytes::from("a"))), Ok(http_body::Frame::trailers(trailers))];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        Response::builder().header("trailer", "sum, content-length").body(body).unwrap()
    };
    let with = exchange("GET / HTTP/1.1\r\nte: trailers\r\nconnection: te, close\r\n\r\n", response()).await;
    assert!(with.ends_with("1\r\na\r\n0\r\nsum: 1\r\n\r\n"), "{with}");
    let without = exchange("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", response()).await;
    assert!(without.ends_with("1\r\na\r\n0\r\n\r\n"), "{without}");
}

#[tokio::test]
async fn http_1_0_clients_can_keep_the_connection() {
    let mut peer = serve_with(|_, _| std::future::ready(Response::new(full("x"))));
    peer.write_all(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    assert_eq!(responses.matches("connection: keep-alive\r\n").count(), 1, "{responses}");
    assert_eq!(responses.matches("connection: close\r\n").count(), 1, "{responses}");
}

#[tokio::test]
async fn sends_100_continue_when_the_body_is_read() {
    let expecting = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let mut peer = serve_with(|request: Request<StreamedServiceBody>, _| async move {
        Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))
    });
    peer.write_all(expecting).await.unwrap();
    let mut interim = [0; 25];
    peer.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    peer.write_all(b"ab").await.unwrap();
    let mut responses = [0; 15];
    peer.read_exact(&mut responses).await.unwrap();
    assert_eq!(&responses, b"HTTP/1.1 200 OK");
    // If the body is not read, the response is sent at once and ends the connection.
    let mut peer = serve_with(|_, _| std::future::ready(Response::new(full("no"))));
    peer.write_all(expecting).await.unwrap();
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    assert!(responses.starts_with("HTTP/1.1 200 OK") && responses.ends_with("no"), "{responses}");
}

#[tokio::test]
async fn streams_a_body_back_as_it_arrives() {
    let mut peer = serve_with(|request: Request<StreamedServiceBody>, _| {
        std::future::ready(Response::new(request.into_body()))
    });
    peer.write_all(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        peer.read_exact(&mut byte).await.unwrap();
        head.push(byte[0]);
    }
    for _ in 0..3 {
        peer.write_all(b"3\r\nabc\r\n").await.unwrap();
        let mut chunk = [0; 8];
        peer.read_exact(&mut chunk).await.unwrap();
        assert_eq!(&chunk, b"3\r\nabc\r\n");
    }
    peer.write_all(b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut end = [0; 20];
    peer.read_exact(&mut end).await.unwrap();
    assert_eq!(&end, b"0\r\n\r\nHTTP/1.1 200 OK");
}

#[tokio::test]
async fn cancels_the_handler_when_the_client_disconnects() {
    struct TestHandler(Option<oneshot::Sender<()>>);
    impl Drop for TestHandler {
        fn drop(&mut self) {
            self.0.take().map(|done| done.send(()));
        }
    }
    let (done, dropped) = oneshot::channel();
    let (begun, begins) = oneshot::channel();
    let mut both = Some((TestHandler(Some(done)), begun));
    let mut peer = serve_with(move |request: Request<StreamedServiceBody>, _| {
        let (worker, begun) = both.take().unwrap();
        assert_eq!((request.method(), request.version()), (&Method::GET, Version::HTTP_11));
        async move {
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(worker);
            Response::new(full(""))
        }
    });
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    begins.await.unwrap();
    drop(peer);
    dropped.await.unwrap();
}

#[tokio::test]
async fn a_body_that_outlives_its_response_never_reads_the_next_request() {
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let mut peer = serve_with(move |request: Request<StreamedServiceBody>, _| {
        let keep = Arc::clone(&keep);
        async move {
            let mut body = request.into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            keep.lock().unwrap().get_or_insert(body);
            Response::new(full(first))
        }
    });
    let first = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n";
    let second = "POST /b HTTP/1.1\r\nContent-Length: 12\r\nConnection: close\r\n\r\nsecret";
    peer.write_all(format!("{first}{second}").as_bytes()).await.unwrap();
    let mut responses = vec![0; 1024];
    let mut length = 0;
    while !String::from_utf8_lossy(&responses[..length]).contains("secret") {
        let read = peer.read(&mut responses[length..]).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&responses[..length]));
        length += read;
    }
    // The gateway may have closed the connection by now.
    let _ = peer.write_all(b"secret").await;
    let mut body = kept.lock().unwrap().take().unwrap();
    assert!(!body.is_end_stream(), "it is broken off, not ended");
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn notices_a_disconnect_after_another_task_has_read_or_dropped_the_body() {
    for is_read in [true, false] {
        let (gone, is_gone) = oneshot::channel::<()>();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut both = Some((gone, stopped));
        let mut peer = serve_with(move |request: Request<StreamedServiceBody>, _| {
            let (gone, stopped) = both.take().unwrap();
            tokio::spawn(async move {
                tokio::select! {
                    _ = request.into_body().collect() => {}
                    _ = stopped => {}
                }
            });
            async move {
                let _gone = gone;
                std::future::pending::<Response<StreamedServiceBody>>().await
            }
        });
        peer.write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\na").await.unwrap();
        tokio::task::yield_now().await;
        if is_read {
            peer.write_all(b"b").await.unwrap();
        } else {
            drop(stop);
        }
        tokio::task::yield_now().await;
        drop(peer);
        is_gone.await.unwrap_err();
    }
}

#[tokio::test]
async fn replaces_final_responses_with_an_interim_status() {
    for status in [100, 101, 103] {
        let response = Response::builder().status(status).body(full("")).unwrap();
        let responses = exchange("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", response).await;
        assert!(responses.starts_with("HTTP/1.1 502 "), "{responses}");
    }
}

#[tokio::test(start_paused = true)]
async fn cuts_off_clients_that_do_not_read_behind_a_buffering_transport() {
    /// A transport like TLS that accepts all writes and flushes nothing.
    struct BufferingTransport(DuplexStream);
    impl AsyncRead for BufferingTransport {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }
    impl AsyncWrite for BufferingTransport {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }
    let (mut ours, theirs) = duplex(1 << 16);
    let answer = |_, _| std::future::ready(Response::new(full("x")));
    ours.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let begun = tokio::time::Instant::now();
    let served =
        serve(BufferingTransport(theirs), &[], ClientInfo::for_tests(), PhaseChange::never(), answer, || {
            true
        })
        .await;
    assert_eq!(served.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed(), WRITE_STALL_TIMEOUT);
}

#[tokio::test]
async fn drops_unread_input_while_a_connection_closes() {
    /// A connection whose client is still sending, so that its shutdown does not complete.
    struct SlowClosingTransport(DuplexStream);
    impl AsyncRead for SlowClosingTransport {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }
    impl AsyncWrite for SlowClosingTransport {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }
    let (_peer, theirs) = duplex(64);
    let wire = SharedConnection::new(SlowClosingTransport(theirs), &[b'x'; 64 << 10]);
    assert!(!wire.is_between_requests());
    assert!(wire.shutdown().now_or_never().is_none());
    assert!(wire.is_between_requests());
}

#[tokio::test]
async fn reads_less_of_each_body_at_once_if_a_client_sends_many_long_ones() {
    let client = ClientInfo::with_limits(ConnectionsConfig::default());
    let others = client.body_permit().unwrap();
    let (mut peer, theirs) = duplex(64 << 10);
    peer.write_all(&[b'x'; 64 << 10]).await.unwrap();
    let mut body =
        SharedConnection::new(theirs, &[]).request_body(BodyFraming::Length(1 << 20), false, &client);
    let mut read = || {
        let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
        frame.data_ref().map_or(0, Bytes::len)
    };
    assert_eq!([read(), read()], [8 << 10, 16 << 10]);
    others.reserve_total(5 << 20).unwrap();
    assert_eq!([read(), read()], [4 << 10, 4 << 10]);
    drop(others);
    assert_eq!([read(), read()], [4 << 10, 16 << 10]);
}

/// Reads a response of this many bytes through a tiny buffer, `portion` bytes at a time after each `pause`.
/// Returns the result and the elapsed time.
async fn read_slowly(length: usize, portion: usize, pause: Duration) -> (io::Result<()>, Duration) {
    let (mut peer, theirs) = duplex(1 << 10);
    let answer = move |_, _| std::future::ready(Response::new(full(vec![b'x'; length])));
    let begun = tokio::time::Instant::now();
    let serving =
        tokio::spawn(serve(theirs, &[], ClientInfo::for_tests(), PhaseChange::never(), answer, || true));
    peer.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut room = vec![0; portion];
    while let Ok(1..) = peer.read(&mut room).await {
        tokio::time::sleep(pause).await;
    }
    (serving.await.unwrap(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn cuts_off_clients_that_read_too_slowly_overall() {
    let (served, elapsed) = read_slowly(1 << 20, 700, Duration::from_secs(20)).await;
    assert_eq!(served.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(elapsed >= WRITE_STALL_TIMEOUT && elapsed < 3 * WRITE_STALL_TIMEOUT, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_slowly_and_steadily_receive_the_whole_response() {
    let (served, elapsed) = read_slowly(256 << 10, 512, Duration::from_secs(1)).await;
    served.unwrap();
    assert!(elapsed > 4 * WRITE_STALL_TIMEOUT, "{elapsed:?}");
}

#[tokio::test]
async fn sends_responses_to_simultaneous_requests_together() {
    let order = Arc::new(Mutex::new(String::new()));
    let request = |name: char| {
        let order = Arc::clone(&order);
        async move {
            order.lock().unwrap().push(name);
            yield_to_ready_tasks().await;
            order.lock().unwrap().push(name.to_ascii_uppercase());
        }
    };
    let requests = ['a', 'b', 'c'].map(|name| tokio::spawn(request(name)));
    for request in requests {
        request.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), "abcABC");
}

#[tokio::test]
async fn yields_between_requests_with_long_heads_that_arrived_together() {
    const COUNT: usize = 30;
    let long = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(60_000));
    let begun = long.repeat(COUNT) + LAST;
    let (mut peer, theirs) = duplex(1 << 20);
    let answer = |_, _| std::future::ready(Response::new(full("x")));
    let serving =
        serve(theirs, begun.as_bytes(), ClientInfo::for_tests(), PhaseChange::never(), answer, || false);
    let (mut serving, mut polls) = (pin!(serving), 0);
    let served = poll_fn(|context| {
        polls += 1;
        serving.as_mut().poll(context)
    });
    served.await.unwrap();
    assert!(polls > COUNT / 4, "{polls} polls");
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    assert_eq!(responses.matches("HTTP/1.1 200").count(), COUNT + 1);
}

#[tokio::test]
async fn answers_a_client_that_has_closed_its_write_side() {
    let mut peer = serve_with(|_, _| std::future::ready(Response::new(full("x"))));
    peer.write_all(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n").await.unwrap();
    peer.shutdown().await.unwrap();
    let mut responses = String::new();
    peer.read_to_string(&mut responses).await.unwrap();
    assert_eq!(responses.matches("HTTP/1.1 200").count(), 2, "{responses}");
}

#[tokio::test(start_paused = true)]
async fn limits_how_far_it_reads_ahead() {
    const PIECE: usize = 1 << 10;
    let answer = |request: Request<StreamedServiceBody>, _: ClientInfo| async move {
        let _request = request;
        std::future::pending::<Response<StreamedServiceBody>>().await
    };
    for (head, most) in [
        ("GET / HTTP/1.1\r\n\r\n", READ_AHEAD.pipelined_limit),
        ("POST / HTTP/1.1\r\ncontent-length: 10000000\r\n\r\n", READ_AHEAD.body_limit),
    ] {
        let (mut peer, theirs) = duplex(PIECE);
        tokio::spawn(serve(theirs, &[], ClientInfo::for_tests(), PhaseChange::never(), answer, || true));
        peer.write_all(head.as_bytes()).await.unwrap();
        let mut taken = 0;
        // Paused time advances by itself once all tasks are idle.
        while let Ok(written) = timeout(Duration::from_secs(1), peer.write(&[b'x'; PIECE])).await {
            taken += written.unwrap();
        }
        assert!((most..=most + 2 * PIECE).contains(&taken), "{head:?}: {taken} bytes");
    }
}

mod fuzz {
    use super::*;

    #[test]
    fn never_panics_and_does_not_depend_on_the_split() {
        let words = &[
            "POST / HTTP/1.1\r\n",
            "GET /a HTTP/1.0\r\n",
            "\r\n",
            "\n",
            "\r",
            "Content-Length: ",
            "transfer-encoding: ",
            "chunked",
            "5",
            "0",
            "ffffffffffffffff",
            "18446744073709551615",
            ",",
            ";",
            "\r\n\r\n",
            "hello",
            ": ",
            " ",
            "\t",
            "+",
            "-",
            "0x",
        ];
        ::fuzz::run("client_http1", words, |text: &[u8]| {
            let pieces: Vec<&[u8]> = text.chunks(1).collect();
            let (transcript, pieces) =
                block_on(async { (run_connection(&[text]).await, run_connection(&pieces).await) });
            assert_eq!(transcript.requests, pieces.requests);
        });
    }
}
