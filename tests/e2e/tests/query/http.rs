//! Checks of a request before its program is read, and the headers of every answer.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use testkit::http::{request, send_raw};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{TestGateway, TestQuery, assert_problem, plain_module};

const HELLO: &str = "export default () => 'hello'";

#[tokio::test]
async fn a_program_needs_a_content_type() {
    let gateway = TestGateway::shared().await;
    let query = TestQuery::untyped(HELLO);
    let accepted = query.send(&gateway).await.header("accept-query").to_owned();
    assert!(accepted.contains("text/typescript"), "{accepted}");
    gateway.expect_problem(query, 400, "content-type-missing").await;
}

#[tokio::test]
async fn the_content_type_has_to_be_known() {
    let gateway = TestGateway::shared().await;
    for unknown in ["text/plain", "application/x-www-form-urlencoded", "*/*", "wasm", ""] {
        gateway.expect_problem(TestQuery::new(unknown, HELLO), 415, "content-type-unknown").await;
    }
    for known in ["Text/JavaScript; charset=utf-8", "application/javascript", "text/typescript"] {
        assert_eq!(gateway.expect_text(TestQuery::new(known, HELLO)).await, "hello", "{known}");
    }
}

#[tokio::test]
async fn accepts_programs_by_post_or_query() {
    let gateway = TestGateway::shared().await;
    for method in ["GET", "PUT", "DELETE"] {
        let answer = TestQuery::javascript(HELLO).method(method).send(&gateway).await;
        assert_problem(&answer, 405, "method-not-allowed");
        assert_eq!(answer.header("allow"), "GET, HEAD, POST, QUERY");
    }
    assert_eq!(gateway.expect_text(TestQuery::javascript(HELLO).method("QUERY")).await, "hello");
}

#[tokio::test]
async fn the_method_query_makes_only_safe_calls() {
    let gateway = TestGateway::shared().await;
    let post =
        TestQuery::javascript("export default (_, { up }) => up.post('/echo?safe')").with_path("/write");
    gateway.expect_problem(post.clone().method("QUERY"), 422, "call-method").await;
    assert!(gateway.expect_text(post).await.contains("POST"));
}

#[tokio::test]
async fn foreign_origins_run_nothing() {
    let gateway = TestGateway::start("  - { path: /query, query: { services: [up] } }").await;
    let program = "export default async (_, { up }) => { await up.get('/status/290'); return 'ran' }";
    for origin in ["https://evil.example", "null", "http://127.0.0.1", ""] {
        gateway
            .expect_problem(TestQuery::javascript(program).header("origin", origin), 403, "origin-forbidden")
            .await;
    }
    assert_eq!(gateway.upstream.hits("/status/290"), 0);
    let query = TestQuery::javascript(program).header("origin", &gateway.gateway.url);
    assert_eq!(gateway.expect_text(query).await, "ran");
}

#[tokio::test]
async fn listed_origins_may_read_answers_and_problems() {
    let gateway = TestGateway::shared().await;
    let shop = |query: TestQuery| query.with_path("/shop").header("origin", "https://shop.example.org");
    let good = shop(TestQuery::javascript(HELLO)).send(&gateway).await;
    let bad = shop(TestQuery::untyped(HELLO)).send(&gateway).await;
    assert_problem(&bad, 400, "content-type-missing");
    for answer in [good, bad] {
        assert_eq!(answer.header("access-control-allow-origin"), "https://shop.example.org");
    }
    let foreign = TestQuery::javascript(HELLO)
        .with_path("/shop")
        .header("origin", "https://shop.example.org.evil.example");
    gateway.expect_problem(foreign, 403, "origin-forbidden").await;
}

#[tokio::test]
async fn a_body_of_100_mb_is_refused_without_buffering() {
    const SIZE: usize = 100 << 20;
    let gateway = TestGateway::start("  - { path: /query, query: { services: [up] } }").await;
    gateway.assert_responsive("/query").await;
    let before = peak_resident_kib(&gateway);
    let known = format!("content-length: {SIZE}\r\n\r\n");
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{SIZE:x}\r\n");
    for framing in [known, chunked] {
        let answer = upload(&gateway, &framing, SIZE).await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"body-too-large\""), "{answer}");
        gateway.assert_responsive("/query").await;
    }
    let grown = peak_resident_kib(&gateway) - before;
    assert!(grown < 32 << 10, "the gateway grew by {grown} KiB");
}

/// Sends the head and as much of the body as the gateway accepts. Returns the answer.
async fn upload(gateway: &TestGateway, framing: &str, size: usize) -> String {
    let mut stream = TcpStream::connect(gateway.gateway.address).await.expect("a connection");
    let head = "POST /query HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: text/javascript\r\n";
    stream.write_all(format!("{head}{framing}").as_bytes()).await.expect("the head is taken");
    let (mut reader, mut writer) = stream.split();
    let mut answer = String::new();
    let body = async {
        let piece = vec![b' '; 64 << 10];
        for _ in 0..size / piece.len() {
            if writer.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    // A refused upload may end in a reset after the answer.
    let (_, _) = tokio::join!(body, reader.read_to_string(&mut answer));
    answer
}

/// Returns the gateway's peak resident size, in KiB.
fn peak_resident_kib(gateway: &TestGateway) -> i64 {
    let pid = gateway.gateway.pid().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn rejects_decompression_bombs() {
    let gateway = TestGateway::shared().await;
    let bomb = gzip(&vec![b' '; 32 << 20]);
    assert!(bomb.len() < 64 << 10, "the compressed body must be below the limit");
    gateway
        .expect_problem(
            TestQuery::new("text/javascript", bomb).header("content-encoding", "gzip"),
            413,
            "body-too-large",
        )
        .await;
}

#[tokio::test]
async fn rejects_bodies_that_do_not_match_their_encoding() {
    let gateway = TestGateway::shared().await;
    let packed = gzip(format!("{{\"n\":1}}{}", "export default ({ n }) => `n is ${n}`").as_bytes());
    let sent =
        |body: &[u8], coding| TestQuery::new("text/javascript", body).header("content-encoding", coding);
    gateway.expect_problem(sent(HELLO.as_bytes(), "gzip"), 400, "content-encoding-broken").await;
    gateway.expect_problem(sent(&packed[..packed.len() / 2], "gzip"), 400, "content-encoding-broken").await;
    gateway.expect_problem(sent(&packed, "br"), 400, "content-encoding-broken").await;
    gateway.expect_problem(sent(&packed, "lzma"), 415, "content-encoding-unknown").await;
    let good = sent(&packed, "gzip").header("orfa-input", "7");
    assert_eq!(gateway.expect_text(good).await, "n is 1", "ORFA-Input counts decoded bytes");
}

#[tokio::test]
async fn decodes_all_gzip_members() {
    let gateway = TestGateway::shared().await;
    let sent = |body: Vec<u8>| TestQuery::new("text/javascript", body).header("content-encoding", "gzip");
    let (first, second) = HELLO.as_bytes().split_at(HELLO.len() / 2);
    let halves = [gzip(first), gzip(second)].concat();
    assert_eq!(
        gateway.expect_text(sent(halves)).await,
        gateway.expect_text(TestQuery::javascript(HELLO)).await
    );
    let junk = [gzip(HELLO.as_bytes()), b"what is this".to_vec()].concat();
    gateway.expect_problem(sent(junk), 400, "content-encoding-broken").await;
}

#[tokio::test]
async fn answer_headers_are_limited_in_length() {
    let gateway = TestGateway::shared().await;
    let long = "export default () => new Response('', { headers: { link: 'x'.repeat(4097) } })";
    gateway.expect_problem(TestQuery::javascript(long), 422, "program-bad-answer").await;
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

#[tokio::test]
async fn rejects_an_input_longer_than_the_body() {
    let gateway = TestGateway::shared().await;
    let query = |length: &str| TestQuery::javascript(HELLO).header("orfa-input", length);
    for length in ["29", "64000", "999999999999999"] {
        let document = gateway.expect_problem(query(length), 400, "input-length").await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains(length)), "{document}");
    }
    gateway.expect_problem(query("28"), 400, "program-missing").await;
    assert_eq!(gateway.expect_text(query("0")).await, "hello");
}

#[tokio::test]
async fn orfa_input_is_one_whole_number() {
    let gateway = TestGateway::shared().await;
    for malformed in ["-1", "1.5", "one", "", "\"7\"", "7, 8", "?1", "1e3", "99999999999999999999", ":Nw==:"]
    {
        let query = TestQuery::javascript(HELLO).header("orfa-input", malformed);
        let document = gateway.expect_problem(query, 400, "header-malformed").await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains("ORFA-Input")), "{document}");
    }
    let twice = TestQuery::javascript(HELLO).header("orfa-input", "0").header("orfa-input", "0");
    gateway.expect_problem(twice, 400, "header-malformed").await;
}

#[tokio::test]
async fn orfa_limit_is_a_dictionary_of_whole_numbers() {
    let gateway = TestGateway::shared().await;
    let malformed = [
        "cpu=fast",
        "cpu=1.5",
        "cpu=-1",
        "cpu=0",
        "cpu",
        "cpu=(1 2)",
        "time=5",
        "cpu=1,",
        "=",
        "cpu=50ms",
        "CPU=1",
    ];
    for malformed in malformed {
        let document = gateway
            .expect_problem(TestQuery::javascript(HELLO).limit(malformed), 400, "header-malformed")
            .await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains("ORFA-Limit")), "{document}");
    }
    let twice = TestQuery::javascript(HELLO).limit("cpu=1").limit("calls=1");
    gateway.expect_problem(twice, 400, "header-malformed").await;
    assert_eq!(
        gateway.expect_text(TestQuery::javascript(HELLO).limit("cpu=200, calls=1;why=not")).await,
        "hello"
    );
}

#[tokio::test]
async fn rejects_missing_oversized_and_non_utf8_programs() {
    let gateway = TestGateway::shared().await;
    gateway.expect_problem(TestQuery::javascript(""), 400, "program-missing").await;
    gateway.expect_problem(TestQuery::module(""), 400, "program-missing").await;
    gateway
        .expect_problem(TestQuery::javascript(&" ".repeat((16 << 10) + 1)), 413, "program-too-large")
        .await;
    gateway.expect_problem(TestQuery::javascript(&" ".repeat((64 << 10) + 1)), 413, "body-too-large").await;
    for text in ["text/javascript", "text/typescript"] {
        gateway
            .expect_problem(TestQuery::new(text, b"export default () => '\xff'"), 400, "program-not-text")
            .await;
    }
}

#[tokio::test]
async fn accepts_multipart_forms() {
    let gateway = TestGateway::shared().await;
    let program = "export default ({ n }: { n: number }) => n + 1";
    // As sent by `curl -F program=@q.ts -F input='{"n":1}'`.
    let curl =
        [("program\"; filename=\"q.ts", "application/octet-stream", program), ("input", "", r#"{"n":1}"#)];
    assert_eq!(gateway.expect_text(multipart_form(&curl)).await, "2");
    // As a browser's FormData sends a Blob; the input may come first or be absent.
    let blob = [("input", "", r#"{"n":2}"#), ("program\"; filename=\"blob", "text/typescript", program)];
    assert_eq!(gateway.expect_text(multipart_form(&blob)).await, "3");
    assert_eq!(gateway.expect_text(multipart_form(&[("program", "text/javascript", HELLO)])).await, "hello");
}

#[tokio::test]
async fn rejects_malformed_forms() {
    let gateway = TestGateway::shared().await;
    let program = ("program", "text/javascript", HELLO);
    gateway.expect_problem(multipart_form(&[("input", "", "{}")]), 400, "program-missing").await;
    gateway
        .expect_problem(multipart_form(&[("program", "text/javascript", "")]), 400, "program-missing")
        .await;
    gateway.expect_problem(multipart_form(&[program, program]), 400, "form-malformed").await;
    gateway.expect_problem(multipart_form(&[program, ("inputs", "", "{}")]), 400, "form-malformed").await;
    gateway.expect_problem(multipart_form(&[("program", "", HELLO)]), 400, "content-type-missing").await;
    gateway
        .expect_problem(multipart_form(&[("program", "text/x-java", HELLO)]), 415, "content-type-unknown")
        .await;
    gateway.expect_problem(TestQuery::new("multipart/form-data", HELLO), 400, "form-malformed").await;
    gateway
        .expect_problem(
            TestQuery::new("multipart/form-data; boundary=b", "--b\r\nno end"),
            400,
            "form-malformed",
        )
        .await;
}

#[tokio::test]
async fn a_form_has_no_orfa_input() {
    let gateway = TestGateway::shared().await;
    for length in ["0", "7", "one"] {
        let query = multipart_form(&[("program", "text/javascript", HELLO)]).header("orfa-input", length);
        gateway.expect_problem(query, 400, "input-misplaced").await;
    }
}

/// Builds a form of parts: the name (with any further parameters), the content type and the text.
fn multipart_form(parts: &[(&str, &str, &str)]) -> TestQuery {
    let mut body = String::new();
    for (name, content_type, text) in parts {
        body += &format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n");
        if !content_type.is_empty() {
            body += &format!("Content-Type: {content_type}\r\n");
        }
        body += &format!("\r\n{text}\r\n");
    }
    TestQuery::new("multipart/form-data; boundary=b", body + "--b--\r\n")
}

#[tokio::test]
async fn a_request_that_is_not_http_is_refused() {
    let gateway = TestGateway::shared().await;
    for nonsense in
        ["\u{16}\u{3}\u{1}", "POST /query\r\n\r\n", "POST /query HTTP/1.1\r\ncontent-length: x\r\n\r\n"]
    {
        let answer = send_raw(gateway.gateway.address, nonsense.as_bytes()).await.expect("a connection");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
        gateway.assert_responsive("/query").await;
    }
}

#[tokio::test]
async fn only_configured_paths_are_routed() {
    let gateway = TestGateway::shared().await;
    for path in ["/", "/nowhere", "/query/", "/query/deeper", "/Query"] {
        let answer = TestQuery::javascript(HELLO).with_path(path).send(&gateway).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["code"]),
            (404, &"route-not-found".into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn answers_are_inert_for_browsers() {
    let gateway = TestGateway::shared().await;
    let module =
        plain_module("(data (i32.const 0) \"<script>\")", "(call $done (i32.const 0) (i32.const 8))");
    let answer = TestQuery::module(module).send(&gateway).await;
    assert_eq!((answer.status.as_u16(), &*answer.text()), (200, "<script>"));
    for (header, value) in [
        ("content-type", "application/octet-stream"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
        ("cache-control", "no-store"),
        ("set-cookie", ""),
    ] {
        assert_eq!(answer.header(header), value, "{header}");
    }
}

#[tokio::test]
async fn every_answer_reports_its_timing() {
    let gateway = TestGateway::shared().await;
    let program =
        "export default (_, { up }) => Promise.all([up.get('/json?timed=1'), up.get('/status/201')])";
    let answer = TestQuery::javascript(program).send(&gateway).await;
    let timing = answer.header("server-timing");
    assert!(
        timing.contains("cpu;dur=") && timing.contains("calls;desc=2") && timing.contains("total;dur="),
        "{timing}"
    );
    assert!(!timing.contains("timed"), "calls are listed only on request: {timing}");
    let response =
        TestQuery::javascript(program).header("prefer", "respond-async, Calls").send(&gateway).await;
    let listed = response.header("server-timing");
    assert!(listed.contains("desc=\"up GET /json?timed=1 200\";dur="), "{listed}");
    let failed =
        TestQuery::javascript(&program.replace("201", "404")).header("prefer", "calls").send(&gateway).await;
    assert!(failed.header("server-timing").contains("up GET /status/404 404"), "{:?}", failed.headers);
}

#[tokio::test]
async fn a_program_is_compiled_once() {
    let gateway = TestGateway::shared().await;
    let module = plain_module("", "(call $done (i32.const 7) (i32.const 0))");
    let first = TestQuery::module(&module[..]).send(&gateway).await;
    assert!(first.header("server-timing").contains("compile;dur="), "{:?}", first.headers);
    let second = TestQuery::module(&module[..]).input("other input").send(&gateway).await;
    assert!(!second.header("server-timing").contains("compile"), "{:?}", second.headers);
}

#[tokio::test]
async fn answers_preflight_requests() {
    let gateway = TestGateway::shared().await;
    let url = format!("{}/shop", gateway.gateway.url);
    let asked = |origin| {
        let url = url.clone();
        async move {
            let headers = [("origin", origin), ("access-control-request-method", "POST")];
            request("OPTIONS", &url, &headers, "").await.expect("an answer")
        }
    };
    let response = asked("https://shop.example.org").await;
    assert_eq!(response.status, 204);
    assert!(response.header("access-control-allow-headers").contains("orfa-input"), "{:?}", response.headers);
    assert_eq!(asked("https://evil.example").await.header("access-control-allow-origin"), "");
}
