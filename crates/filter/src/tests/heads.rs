//! Heads: read, changed, answered, held back.

use super::*;
use crate::HostDialect;

#[tokio::test]
async fn headers_are_added_replaced_and_removed() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $add (i32.const 0) «x-new» «yes»))
            (call $want (i32.const 0) (call $replace (i32.const 0) «x-a» «2»))
            (call $want (i32.const 0) (call $remove (i32.const 0) «x-b»))
            (call $want (i32.const 0) (call $replace (i32.const 0) «:path» «/else?q=1»))
            (call $want (i32.const 1) (call $get (i32.const 0) «x-none» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 2) (call $get (i32.const 9) «x-none» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $get (i32.const 0) «:authority» (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-authority»)
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $replace (i32.const 2) «:status» «201»))
            (call $want (i32.const 0) (call $add (i32.const 2) «x-filter» «on»))
            (i32.const 0))"#,
    );
    let mut request = get("/there");
    request.headers_mut().insert("x-b", "1".parse().unwrap());
    let answer = send(&chain, request).await.unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("x-filter"), "on");
    assert_eq!(answer.header("got-x-new"), "yes");
    assert_eq!(answer.header("got-x-a"), "2");
    assert_eq!(answer.header("got-x-b"), "");
    assert_eq!(answer.header("got-path"), "/else?q=1");
    assert_eq!(answer.header("got-x-authority"), "example.org");
}

#[tokio::test]
async fn filters_see_requests_by_priority_and_responses_in_reverse() {
    let bench = FilterFixture::new();
    let marks = |mark: &str| {
        let code = r#"
            (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
                (call $want (i32.const 0) (call $add (i32.const 0) «x-mark» «MARK»)) (i32.const 0))
            (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
                (call $want (i32.const 0) (call $add (i32.const 2) «x-mark» «MARK»)) (i32.const 0))"#;
        bench.filter(mark, &code.replace("MARK", mark))
    };
    let (a, b, mut c) = (marks("a"), marks("b"), marks("c"));
    c.priority = 1;
    let answer = send(&bench.chain(&[a, b, c]), get("/")).await.unwrap();
    let all = |name: &str| -> String {
        answer.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    };
    assert_eq!((all("got-x-mark").as_str(), all("x-mark").as_str()), ("cab", "bac"));
}

#[tokio::test]
async fn the_first_local_response_passes_the_filters_that_saw_the_request() {
    let bench = FilterFixture::new();
    let outer = bench.filter(
        "outer",
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $add (i32.const 2) «x-outer» «seen»)) (i32.const 0))"#,
    );
    let inner = bench.filter(
        "inner",
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $respond (i32.const 418) «why» «teapot»
                ‹content-length 9999|x-own yes› (i32.const -1)))
            (call $want (i32.const 0) (call $respond (i32.const 500) «» «» ‹› (i32.const -1)))
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $add (i32.const 2) «x-inner» «seen»)) (i32.const 0))"#,
    );
    let never = bench.filter(
        "never",
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) unreachable)
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) unreachable)"#,
    );
    let answer = send(&bench.chain(&[outer, inner, never]), get("/")).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (418, &b"teapot"[..]));
    assert_eq!((answer.header("x-own"), answer.header("content-length")), ("yes", ""));
    assert_eq!((answer.header("x-inner"), answer.header("x-outer")), ("seen", "seen"));
}

#[tokio::test]
async fn responses_of_services_can_be_replaced() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $respond (i32.const 599) «» «gone» ‹› (i32.const -1)))
            (i32.const 1))"#,
    );
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..], answer.header("got-x-a")), (599, &b"gone"[..], ""));
}

#[tokio::test]
async fn all_headers_are_read_and_set_at_once() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $pairs (i32.const 0) (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $set_pairs (i32.const 0) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (call $want (i32.const 0) (call $set_pairs (i32.const 0) ‹:method PUT|:path /set|x-one 1›))
            (call $want (i32.const 2) (call $set_pairs (i32.const 0) ‹bad\nname x›))
            (i32.const 0))"#);
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!((answer.header("got-path"), answer.header("got-method")), ("/set", "PUT"));
    assert_eq!((answer.header("got-x-one"), answer.header("got-x-a")), ("1", ""));
    assert_eq!(answer.header("got-host"), "example.org");
}

#[tokio::test]
async fn accesses_that_envoy_refuses_work_in_the_lenient_dialect_only() {
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const WRITE) (call $add (i32.const 2) «x-early» «1»))
            (call $want (i32.const CONFIG)
                (call $buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 0) (i32.const 4)))
            (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const READ) (call $get (i32.const 0) «x-a» (i32.const 0) (i32.const 4)))
            (i32.const 0))"#;
    let bench = FilterFixture::new();
    let filter = |name: &str, write: &str, config: &str, read: &str| {
        let code = code.replace("WRITE", write).replace("CONFIG", config).replace("READ", read);
        let mut filter = bench.filter(name, &code);
        filter.config = serde_json::json!({"a": 1});
        filter
    };
    let lenient = filter("lenient", "0", "0", "0");
    let answer = send(&bench.chain(&[lenient]), get("/")).await.unwrap();
    assert_eq!(answer.header("x-early"), "1");
    let mut strict = filter("strict", "2", "1", "2");
    strict.dialect = HostDialect::Strict;
    let answer = send(&bench.chain(&[strict]), get("/")).await.unwrap();
    assert_eq!(answer.header("x-early"), "");
}

#[tokio::test]
async fn properties_have_envoy_encodings_and_nginx_names() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func $show (param $path i32) (param $of i32) (param $name i32) (param $length i32)
            (call $want (i32.const 0)
                (call $property (local.get $path) (local.get $of) (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) (local.get $name) (local.get $length)))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $show «request\0path» «x-path»)
            (call $show «request\0headers\0x-a» «x-header»)
            (call $show «source\0address» «x-source»)
            (call $show «remote_addr» «x-remote»)
            (call $show «arg_b» «x-arg»)
            (call $show «plugin_name» «x-plugin»)
            (call $show «xds\0cluster_name» «x-cluster»)
            (call $show «xds\0route_name» «x-route»)
            (call $show «connection\0subject_peer_certificate» «x-subject»)
            (call $show «connection\0dns_san_peer_certificate» «x-dns»)
            (call $show «connection\0sha256_peer_certificate_digest» «x-digest»)
            (call $show «connection\0tls_version» «x-version»)
            (call $show «request\0id» «x-id»)
            (call $show «request_id» «x-same-id»)
            (call $want (i32.const 1)
                (call $property «connection\0uri_san_peer_certificate» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $property «connection\0id» (i32.const 0) (i32.const 4)))
            (if (i64.ne (i64.load (i32.load (i32.const 0))) (i64.const 7)) (then unreachable))
            (call $want (i32.const 0) (call $property «connection\0mtls» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 1) (i32.load (i32.const 4)))
            (call $want (i32.const 1) (call $property «no\0such» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $set_property «my.own» «kept»))
            (call $show «my.own» «x-own»)
            (call $want (i32.const 0) (call $set_property «wasm_process_req_body» «true»))
            (i32.const 0))"#,
    );
    let certificate = crate::CertificateInfo {
        subject: "CN=checkout,O=Shop".into(),
        dns: Some("checkout.example".into()),
        uri: None,
        digest: "abcd".into(),
    };
    let tls = crate::TlsInfo {
        version: Some("TLSv1.3"),
        server_name: None,
        is_mutual: true,
        certificate: Some(certificate),
    };
    let facts = ExchangeInfo { tls: Some(Arc::new(tls)), ..exchange_info() };
    let response = chain
        .run_http_exchange(get("/p?b=c"), call_with_timeout(Duration::from_secs(60)), facts, echo)
        .await
        .unwrap();
    let answer = collect_response(response).await.unwrap();
    let shown = ["cluster", "route", "subject", "dns", "digest", "version"]
        .map(|name| answer.header(&format!("got-x-{name}")).to_owned());
    assert_eq!(shown, ["shop", "/test/*", "CN=checkout,O=Shop", "checkout.example", "abcd", "TLSv1.3"]);
    assert_eq!(answer.header("got-x-id").len(), 32);
    assert_eq!(answer.header("got-x-id"), answer.header("got-x-same-id"));
    let shown = ["path", "header", "source", "remote", "arg", "plugin", "own"]
        .map(|name| answer.header(&format!("got-x-{name}")).to_owned());
    assert_eq!(shown, ["/p?b=c", "1", "192.0.2.1:1234", "192.0.2.1", "c", "test", "kept"]);
}

#[tokio::test]
async fn supports_modules_of_abi_0_1_0() {
    let bench = FilterFixture::new();
    let text = r#"(module
        (import "env" "proxy_get_header_map_value"
            (func $get (param i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_continue_request" (func $continue (result i32)))
        (memory (export "memory") 1)
        (func (export "proxy_abi_version_0_1_0"))
        (func (export "_start"))
        (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 512))
        (func (export "proxy_on_request_headers") (param i32 i32) (result i32)
            (if (call $get (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 4))
                (then unreachable))
            (drop (call $continue))
            (i32.const 1)))"#;
    bench.write_module("old.wasm", &wat::parse_str(text).unwrap());
    let chain = bench.chain(&[FilterConfig::from_module("old.wasm")]);
    assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn heads_held_back_past_the_deadline_fail() {
    let bench = FilterFixture::new();
    for name in ["proxy_on_request_headers", "proxy_on_response_headers"] {
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"{name}\") (param i32 i32 i32) (result i32) (i32.const 1))"
        ));
        assert_eq!(send(&chain, get("/")).await.unwrap_err(), FilterFailure::Paused("test".into()), "{name}");
    }
}

#[tokio::test]
async fn callbacks_come_in_the_order_of_the_specification() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_context_create") (param i32 i32))
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))
        (func (export "proxy_on_log") (param i32)
            (call $want (i32.const 0) (call $get (i32.const 2) «:status» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $get (i32.const 0) «:path» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 2) (call $add (i32.const 2) «x-late» «1»)))
        (func (export "proxy_on_delete") (param i32))"#,
    );
    send(&chain, post("body")).await.unwrap();
    drop(chain);
    let callbacks = Mutex::new(Vec::new());
    let wanted = [
        "context_create",
        "vm_start",
        "configure",
        "context_create",
        "request_headers",
        "request_body",
        "response_headers",
        "response_body",
        "done",
        "log",
        "delete",
        "done",
        "delete",
    ];
    let is_over = |bench: &FilterFixture| {
        let mut callbacks = callbacks.lock().unwrap();
        callbacks.extend(bench.take_events().into_iter().filter(|words| words.starts_with("proxy_on")));
        callbacks.len() == wanted.len()
    };
    bench.wait_until(is_over).await;
    assert_eq!(*callbacks.lock().unwrap(), wanted.map(|name| format!("proxy_on_{name}")));
}

#[tokio::test]
async fn local_responses_to_grpc_requests_are_grpc() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0)
                (call $respond (i32.const 503) «why» «down» ‹› (i32.const -1)))
            (i32.const 0))"#,
    );
    let request =
        Request::post("/s/m").header("content-type", "application/grpc").body(body::empty()).unwrap();
    let answer = send(&chain, request).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.header("grpc-status")), (200, "14"));
}

#[tokio::test]
async fn filter_headers_replace_other_spellings_of_the_client() {
    let write = "(call $want (i32.const 0) ";
    let deeds = [
        (format!("{write} (call $replace (i32.const 0) «x-user» «me»))"), "me"),
        (format!("{write} (call $add (i32.const 0) «x-user» «me»))"), "me"),
        (format!("{write} (call $remove (i32.const 0) «x-user»))"), ""),
        // Like a module that writes back all headers that it has read.
        (format!("{write} (call $set_pairs (i32.const 0) ‹:path /|x_user root|x-user me›))"), "me"),
        (format!("{write} (call $set_pairs (i32.const 0) ‹:path /|x-user me|x_user root›))"), "me"),
    ];
    for ((deed, expected), other) in deeds.iter().flat_map(|deed| [(deed, "x_user"), (deed, "x.user")]) {
        let deed = deed.replace("x_user", other);
        let bench = FilterFixture::new();
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {deed} (i32.const 0))"
        ));
        let mut request = get("/");
        request.headers_mut().insert(other, "root".parse().unwrap());
        let answer = send(&chain, request).await.unwrap();
        let got = (answer.header("got-x-user"), answer.header(&format!("got-{other}")));
        assert_eq!(got, (*expected, ""), "{deed}");
    }
}

#[tokio::test]
async fn untouched_headers_keep_their_spelling() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $replace (i32.const 0) «x-user» «me»))
            (call $want (i32.const 0) (call $replace (i32.const 0) «x-own-id» «1»))
            (call $want (i32.const 0) (call $replace (i32.const 0) «x_own_id» «2»))
            (call $want (i32.const 0) (call $pairs (i32.const 0) (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0)
                (call $set_pairs (i32.const 0) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (i32.const 0))"#,
    );
    let mut request = get("/");
    request.headers_mut().insert("x_other", "3".parse().unwrap());
    let answer = send(&chain, request).await.unwrap();
    let got = ["x-user", "x-own-id", "x_own_id", "x_other"].map(|name| answer.header(&format!("got-{name}")));
    assert_eq!(got, ["me", "1", "2", "3"]);
}
