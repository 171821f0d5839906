//! Tests of filters' calls: to hosts that only they may call, and calls whose request ends first.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Waits for a call before the request's head is forwarded; `x-user` is then `one`.
const WAITS: &str = r#"
    (data (i32.const 144) "x-user")
    (global $id (mut i32) (i32.const 0))
    (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
        (global.set $id (local.get $id)) (call $ask) (i32.const 1))
    (func (export "proxy_on_http_call_response") (param i32 i32) (param $headers i32) (param i32 i32)
        (call $want (i32.const 0) (call $effective (global.get $id)))
        (if (i32.eqz (local.get $headers)) (then
            (drop (call $respond (i32.const 504) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const -1)))
            (return)))
        (call $want (i32.const 0)
            (call $replace (i32.const 0) (i32.const 144) (i32.const 6) (i32.const 32) (i32.const 3)))
        (call $want (i32.const 0) (call $continue (i32.const 0))))
    (func (export "proxy_on_log") (param i32) (call $count))"#;

fn waiting_module(path: &str) -> String {
    format!("{}{}{WAITS}", counter_module(), call_module(path))
}

/// A config whose only route has this filter, and without a service of the name that the filter calls.
fn config_without_service(modules: &ModuleFolder, more: &str) -> String {
    let wasm = modules.module_path("calls");
    format!(
        "services: {{ shop: {{ url: 'http://UPSTREAM' }} }}\nroutes:\n  \
         - {{ path: '/echo/*', proxy: shop, filters: [{{ wasm: '{}'{more} }}] }}\n",
        wasm.display()
    )
}

/// Returns the module with calls to this host.
fn module_calling(host: &str) -> String {
    let code = waiting_module("/a")
        .replace("(data (i32.const 80) \"echo\")", &format!("(data (i32.const 3000) \"{host}\")"));
    code.replace("(i32.const 80) (i32.const 4)", &format!("(i32.const 3000) (i32.const {})", host.len()))
}

#[tokio::test]
async fn filters_can_call_hosts_that_their_config_allows() {
    let fixture = GatewayFixture::new(
        "services: { echo: { url: 'http://UPSTREAM' } }\nroutes: [{ path: /a, proxy: echo }]\n",
    )
    .await;
    let host = fixture.address;
    let modules = ModuleFolder::new(&[("calls", &module_calling(&host.to_string()))]);
    for (hosts, expected) in [
        (format!(", hosts: ['{host}']"), (200, "one")),
        (", hosts: ['127.0.0.0/8']".to_owned(), (200, "one")),
        // The host is allowed, but not explicitly on this machine.
        (", hosts: ['*']".to_owned(), (504, "")),
        (", hosts: ['*.example.org', '10.0.0.0/8']".to_owned(), (503, "")),
        (String::new(), (503, "")),
    ] {
        let gateway_fixture = GatewayFixture::new(&config_without_service(&modules, &hosts)).await;
        let answer = gateway_fixture.send_request(get("/echo/a")).await;
        assert_eq!((answer.status().as_u16(), answer.header("seen-user")), expected, "{hosts}");
    }
    assert_eq!(fixture.end().await.log.lines().count(), 2, "no other call got there");
}

#[tokio::test]
async fn reports_invalid_host_patterns() {
    let modules = ModuleFolder::new(&[("calls", &module_calling("a"))]);
    let text = config_without_service(&modules, ", hosts: ['https://auth.internal']");
    let Err(BuildError::Config(mistakes)) = Gateway::build(parse_config(&text, "127.0.0.1:1")) else {
        panic!()
    };
    let said = mistakes[0].to_string();
    assert!(said.contains("routes[0].filters[0].hosts") && said.contains("filter-host-invalid"), "{said}");
}

#[tokio::test]
async fn cancels_calls_when_the_client_disconnects() {
    let modules = ModuleFolder::new(&[("waits", &waiting_module("/wait"))]);
    let fixture = GatewayFixture::new(&modules.proxy_config(&[("waits", "")])).await;
    let body = "a".repeat(1000);
    for (number, head) in [
        "GET /echo/a HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        // With a body that has arrived, and one that has not.
        format!("POST /echo/a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{body}"),
        "POST /echo/a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let mut stream = fixture.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        fixture.upstream.wait_until_arrived().await;
        assert_eq!(fixture.module_counter(), number as u64);
        drop(stream);
        fixture.upstream.wait_until_ended().await;
        wait_until(|| fixture.module_counter() == number as u64 + 1).await;
    }
    let stats = fixture.stats("waits");
    // None of the calls completed, since the filter would have sent a response then.
    assert_eq!((stats.traps, stats.calls, stats.local_responses), (0, 3, 0), "{stats:?}");
    // The next request has a call of its own.
    let next = tokio::spawn(fixture.send_detached(get("/echo/a")));
    fixture.upstream.wait_until_arrived().await;
    fixture.upstream.release();
    assert_eq!(next.await.unwrap().header("seen-user"), "one");
}

#[tokio::test]
async fn cancels_calls_when_the_client_resets_the_stream() {
    let modules = ModuleFolder::new(&[("waits", &waiting_module("/wait"))]);
    let fixture = GatewayFixture::new(&modules.proxy_config(&[("waits", "")])).await;
    for request in [get("/echo/a"), post("/echo/a", "body")] {
        let before = fixture.module_counter();
        let mut asking = Box::pin(fixture.send_http2(request));
        tokio::select! {
            _ = &mut asking => panic!("an answer"),
            () = fixture.upstream.wait_until_arrived() => {}
        }
        drop(asking);
        fixture.upstream.wait_until_ended().await;
        wait_until(|| fixture.module_counter() == before + 1).await;
    }
    assert_eq!(fixture.stats("waits").traps, 0);
}

#[tokio::test]
async fn sends_100_continue_only_after_the_filter_has_passed_the_head() {
    let modules = ModuleFolder::new(&[("waits", &waiting_module("/wait"))]);
    let fixture = GatewayFixture::new(&modules.proxy_config(&[("waits", "")])).await;
    let mut stream = fixture.connect().await;
    let head = "POST /echo/a HTTP/1.1\r\nhost: a\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    fixture.upstream.wait_until_arrived().await;
    let mut buffer = [0; 512];
    assert!(stream.try_read(&mut buffer).is_err(), "nothing is sent while the filter waits");
    fixture.upstream.release();
    let read = stream.read(&mut buffer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer[..read]), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#""body":"body""#), "{answer}");
}

#[tokio::test]
async fn calls_of_programs_have_the_headers_that_filters_set() {
    let modules = ModuleFolder::new(&[("waits", &waiting_module("/a"))]);
    let text = modules.config(&[("waits", "")]);
    let text = text.replace("url: 'http://UPSTREAM'", "url: 'http://UPSTREAM', forward: [x-user]");
    let fixture = GatewayFixture::new(&text).await;
    let mut request = post(
        "/query",
        "export default async ({}, { echo }) => {
        const answer = await echo.fetch('/deep'); return answer.headers.get('seen-user') }",
    );
    request.headers_mut().insert("content-type", "text/javascript".parse().unwrap());
    request.headers_mut().insert("x-user", "admin".parse().unwrap());
    let answer = fixture.send_request(request).await;
    assert_eq!(answer.text(), "one", "not the client's value");
}
