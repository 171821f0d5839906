//! Encoded answers as real clients read them: compressed in every coding, deduplicated, or both.

use serde_json::Value;
use testkit::{GatewayProcess, http, misbehaving_upstream, with_timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::orfa_binary;

const SCRIPT: &str = "service shop {
  res '/list' on GET { respond Array.from({ length: 300 }, (_, id) => ({ id, by: { name: 'Grace Hopper', of: 'Yale' } })) }
}
";
const PROGRAM: &str = "export default async (_, { up }) => up.get('/json', { n: 300 })";
const DEDUP: &str = "application/vnd.orfa.dedup+json";

/// A filter that inserts `1,` before the first item of every answer.
const FILTER: &str = r#"(module
    (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "[1,")
    (global $done (mut i32) (i32.const 0))
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32) (global.set $done (i32.const 0)))
    (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
        (if (i32.eqz (global.get $done)) (then
            (global.set $done (i32.const 1))
            (drop (call $set (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16) (i32.const 3)))))
        (i32.const 0)))"#;

async fn start_gateway(service: &str) -> GatewayProcess {
    let folder = tempfile::tempdir().expect("a folder");
    let filter = folder.path().join("filter.wasm");
    std::fs::write(&filter, wat::parse_str(FILTER).expect("a module")).expect("written");
    let routes = [
        "{ path: /query, query: { services: [up] } }",
        "{ path: '/s/*', script: shop.sjs }",
        "{ path: '/up/*', proxy: up }",
        "{ path: '/small/*', proxy: up, compress: true }",
        "{ path: '/plain/*', proxy: up, dedup: false }",
        &format!(
            "{{ path: '/filtered/*', proxy: up, compress: true, filters: [{{ wasm: {} }}] }}",
            filter.display()
        ),
    ];
    let routes = routes.map(|route| format!("\n  - {route}")).concat();
    let config = format!(
        "listen: 127.0.0.1:0\ndrain: {{ delay: 0s }}\nshed: {{ automatic: false }}\n\
         services: {{ up: {{ url: '{service}' }} }}\nroutes:{routes}\n"
    );
    GatewayProcess::start_with(orfa_binary(), &config, &[("shop.sjs", SCRIPT)]).await
}

/// Runs curl, which decodes the answer. Returns the answer's head in lower case, and its body.
async fn run_curl(arguments: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    let ran = curl.args(["-s", "-S", "-i", "--compressed"]).args(arguments).kill_on_drop(true).output();
    let ran = with_timeout("curl's end", ran).await.expect("curl is required");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let read = String::from_utf8(ran.stdout).expect("text");
    let (head, body) = read.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn curl_decodes_answers_of_every_handler_in_every_coding() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let ways: [(&str, &[&str]); 3] = [
        ("/query", &["-H", "content-type: text/javascript", "--data-binary", PROGRAM]),
        ("/s/list", &[]),
        ("/small/json?n=300", &[]),
    ];
    for (path, more) in ways {
        let url = format!("{}{path}", gateway.url);
        let ask = async |accept: &str| {
            let accept = format!("accept-encoding: {accept}");
            run_curl(&[more, &["-H", &accept, &url]].concat()).await
        };
        let (head, plain) = ask("identity").await;
        assert!(!head.contains("content-encoding") && head.contains("accept-encoding"), "{path}: {head}");
        assert!(plain.len() > 2000, "{path}: {plain}");
        for coding in ["zstd", "br", "gzip"] {
            let (head, body) = ask(coding).await;
            assert!(head.contains(&format!("content-encoding: {coding}")), "{path}: {head}");
            assert_eq!(body, plain, "{path} in {coding}");
        }
    }
}

#[tokio::test]
async fn node_decodes_compressed_answers() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let code = "const answer = await fetch(process.argv[1]);
        console.log(answer.headers.get('content-encoding') !== null, (await answer.json()).length)";
    let mut node = Command::new("node");
    let url = format!("{}/s/list", gateway.url);
    let ran = node.args(["--input-type=module", "-e", code, &url]).kill_on_drop(true).output();
    let ran = with_timeout("Node's end", ran).await.expect("node is required");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "true 300", "{ran:?}");
}

#[tokio::test]
async fn proxied_responses_are_compressed_only_if_configured() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let (head, _) = run_curl(&[&format!("{}/up/json?n=300", gateway.url)]).await;
    assert!(!head.contains("content-encoding") && !head.contains("accept-encoding"), "{head}");
    let (head, body) =
        run_curl(&["-H", "accept-encoding: br, gzip", &format!("{}/small/encoded?with=gzip", gateway.url)])
            .await;
    assert_eq!(head.matches("content-encoding: gzip").count(), 1, "{head}");
    assert_eq!(serde_json::from_str::<Vec<Value>>(&body).expect("JSON").len(), 100);
}

#[tokio::test]
async fn answers_are_deduplicated_and_then_compressed() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let url = format!("{}/s/list", gateway.url);
    let plain = http::request("GET", &url, &[], "").await.expect("an answer");
    assert_eq!(plain.header("content-type"), "application/json");
    let accept = ["accept: application/vnd.orfa.dedup+json, application/json;q=0.9", "accept-encoding: br"];
    let (head, body) = run_curl(&["-H", accept[0], "-H", accept[1], &url]).await;
    assert!(
        head.contains(&format!("content-type: {DEDUP}")) && head.contains("content-encoding: br"),
        "{head}"
    );
    assert!(head.contains("vary: accept\r\n") && head.contains("vary: accept-encoding"), "{head}");
    let decoded = dedup::decode(body.as_bytes(), 1 << 20).expect("a deduplicated text");
    assert_eq!(serde_json::from_slice::<Value>(&decoded).expect("JSON"), plain.json());

    let query = [("content-type", "text/javascript"), ("accept", DEDUP)];
    let program = "export default () => Array(50).fill({ name: 'Grace Hopper', of: 'Yale' })";
    let answer =
        http::request("POST", &format!("{}/query", gateway.url), &query, program).await.expect("an answer");
    assert_eq!(answer.header("content-type"), DEDUP);

    let refused =
        http::request("GET", &format!("{}/nowhere", gateway.url), &query[1..], "").await.expect("an answer");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    for (path, is_offered) in [("/up/json?n=300", true), ("/plain/json?n=300", false)] {
        let answer = http::request("GET", &format!("{}{path}", gateway.url), &query[1..], "")
            .await
            .expect("an answer");
        assert_eq!(answer.header("vary") == "accept", is_offered, "{path}");
    }
}

#[tokio::test]
async fn http2_answers_are_deduplicated_in_every_coding() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let url = format!("{}/s/list", gateway.url);
    let accept = format!("accept: {DEDUP}");
    for coding in ["gzip", "br", "zstd"] {
        let coding_header = format!("accept-encoding: {coding}");
        let (head, body) =
            run_curl(&["--http2-prior-knowledge", "-H", &accept, "-H", &coding_header, &url]).await;
        assert!(
            head.starts_with("http/2 200") && head.contains(&format!("content-encoding: {coding}")),
            "{head}"
        );
        let decoded = dedup::decode(body.as_bytes(), 1 << 20).expect("a deduplicated text");
        let list: Vec<Value> = serde_json::from_slice(&decoded).expect("JSON");
        assert_eq!((list.len(), &list[299]["by"]["of"]), (300, &Value::from("Yale")));
    }
}

#[tokio::test]
async fn filters_run_before_compression() {
    let upstream = misbehaving_upstream::start().await;
    let gateway = start_gateway(&upstream.url()).await;
    let (head, body) =
        run_curl(&["-H", "accept-encoding: zstd", &format!("{}/filtered/json?n=300", gateway.url)]).await;
    assert!(head.contains("content-encoding: zstd"), "{head}");
    let list: Vec<Value> = serde_json::from_str(&body).expect("JSON");
    assert_eq!((list.len(), &list[0]), (301, &Value::from(1)));
}

#[tokio::test]
async fn compression_flushes_slow_answers_piece_by_piece() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let service = format!("http://{}", listener.local_addr().expect("an address"));
    let (go_on, told) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the gateway");
        let _ = stream.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}6\r\nfirst \r\n").as_bytes()).await.expect("written");
        let _ = told.await;
        stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.expect("written");
    });
    let gateway = start_gateway(&service).await;
    let mut curl = Command::new("curl");
    let arguments =
        ["-s", "-N", "--compressed", "-H", "accept-encoding: br", &format!("{}/small/x", gateway.url)];
    let mut curl =
        curl.args(arguments).stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().expect("curl");
    let mut out = curl.stdout.take().expect("its output");
    let mut first = [0; 6];
    with_timeout("the first piece", out.read_exact(&mut first)).await.expect("the first piece");
    assert_eq!(&first, b"first ");
    go_on.send(()).expect("the service waits");
    let mut rest = String::new();
    with_timeout("the rest", out.read_to_string(&mut rest)).await.expect("the rest");
    assert_eq!(rest, "second");
}
