//! Tests of faulty filters beside others, and of many concurrent requests: each has its response, its log
//! line and its counts.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Never returns from `/loop`, and passes everything else.
const LOOPS: &str = r#"
    (data (i32.const 144) ":path")
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $want (i32.const 0)
            (call $get (i32.const 0) (i32.const 144) (i32.const 5) (i32.const 136) (i32.const 140)))
        ;; The letter after the route's part.
        (if (i32.eq (i32.load8_u offset=6 (i32.load (i32.const 136))) (i32.const 0x6c))
            (then (loop $for_ever (br $for_ever))))
        (i32.const 0))"#;

/// Two routes with the same filter, and one without.
fn config_with_free_route(modules: &ModuleFolder, filter: &str) -> String {
    let filter =
        format!("{{ wasm: '{}', limits: {{ cpu: 20ms }}{filter} }}", modules.module_path("loops").display());
    format!(
        "shed: {{ automatic: false }}\nservices: {{ echo: {{ url: 'http://UPSTREAM' }} }}\nroutes:\n  \
         - {{ path: '/echo/*', proxy: echo, filters: [{filter}] }}\n  \
         - {{ path: '/next/*', proxy: echo, filters: [{filter}] }}\n  \
         - {{ path: '/free/*', proxy: echo }}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_looping_filter_fails_only_its_own_requests() {
    let modules = ModuleFolder::new(&[("loops", LOOPS)]);
    let rig = GatewayFixture::new(&config_with_free_route(&modules, "")).await;
    let looping = || async {
        let answer = rig.send_request(get("/echo/loop")).await;
        (answer.status().as_u16(), answer.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    let beside = |path: &'static str| {
        let rig = &rig;
        async move { (rig.send_request(get(path)).await.status().as_u16(), String::new()) }
    };
    let loops: Vec<_> = join_all((0..6).map(|_| looping())).await;
    assert!(loops.iter().all(|loops| *loops == (503, "filter-failed".to_owned())), "{loops:?}");
    let (loops, next, free) = tokio::join!(
        join_all((0..3).map(|_| looping())),
        join_all((0..40).map(|_| beside("/next/a"))),
        join_all((0..40).map(|_| beside("/free/a"))),
    );
    assert!(loops.iter().all(|(status, _)| *status == 503), "{loops:?}");
    assert!(next.iter().chain(&free).all(|(status, _)| *status == 200), "{next:?} {free:?}");
    let stats = rig.stats("loops");
    assert_eq!(stats.failed_requests, 9, "{stats:?}");
    assert!((1..=9).contains(&stats.traps), "{stats:?}");
    let log = rig.end().await.log;
    assert_eq!(log.matches(r#""status":503,"code":"filter-failed""#).count(), 9, "{log}");
}

/// Increments the shared value with retries, and reports the result.
const ADDS: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (local $status i32)
        (loop $again
            (if (i32.eqz (call $get_data (i32.const 32) (i32.const 3) (i32.const 136) (i32.const 140) (i32.const 148)))
                (then (i32.store (i32.const 152) (i32.load (i32.load (i32.const 136)))))
                (else (i32.store (i32.const 152) (i32.const 0)) (i32.store (i32.const 148) (i32.const 0))))
            (i32.store (i32.const 152) (i32.add (i32.load (i32.const 152)) (i32.const 1)))
            (local.set $status (call $set_data (i32.const 32) (i32.const 3) (i32.const 152) (i32.const 4)
                (i32.load (i32.const 148))))
            (br_if $again (i32.eq (local.get $status) (i32.const 8))))
        (call $want (i32.const 0) (local.get $status))
        (call $want (i32.const 0)
            (call $record (i32.load (i32.const 128)) (i64.extend_i32_u (i32.load (i32.const 152)))))
        (i32.const 0))"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_increments_of_shared_data_add_up() {
    let modules = ModuleFolder::new(&[("adds", &format!("{}{ADDS}", DEFINES_METRIC.replace("TYPE", "1")))]);
    let rig =
        Arc::new(GatewayFixture::new(&modules.proxy_config(&[("adds", ", limits: { cpu: 1s }")])).await);
    // The first request runs alone, because a value that does not exist yet can't be compared.
    rig.send_request(get("/echo/a")).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move {
                for _ in 0..25 {
                    assert_eq!(rig.send_request(get("/echo/a")).await.status(), StatusCode::OK);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    rig.send_request(get("/echo/a")).await;
    assert_eq!(rig.module_counter(), 202);
}

/// Reads all headers of the request, and returns their number as the first byte of `x-filter`, counted from
/// `A`.
const READS_ALL: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $want (i32.const 0) (call $pairs (i32.const 0) (i32.const 136) (i32.const 140)))
        (call $want (local.get 1) (i32.load (i32.load (i32.const 136))))
        (i32.const 0))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (call $say (i32.const 32)) (i32.const 0))"#;

#[tokio::test]
async fn passes_heads_of_the_maximum_size_through_a_filter() {
    let modules = ModuleFolder::new(&[("reads", READS_ALL)]);
    let rig = GatewayFixture::new(&modules.proxy_config(&[("reads", ", limits: { cpu: 1s }")])).await;
    let request = |count: usize, length: usize| {
        let mut request = get("/echo/a");
        for number in 0..count {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            request.headers_mut().insert(name, "a".repeat(length).parse().unwrap());
        }
        request
    };
    for (count, length) in [(90, 300), (1, 50_000)] {
        let answer = rig.send_request(request(count, length)).await;
        assert_eq!(
            (answer.status(), answer.header("x-filter")),
            (StatusCode::OK, "one"),
            "{count} of {length}"
        );
    }
    // Nothing of it reaches the filter.
    assert_eq!(rig.send_request(request(3, 50_000)).await.json()["code"], "head-too-large");
    assert_eq!(rig.stats("reads").requests, 2);
}

/// Adds headers of 1000 bytes to map WHERE until it receives an error, and asserts that it does.
const ADDS_MANY_HEADERS: &str = r#"
    (func (export "CALLBACK") (param i32 i32 i32) (result i32)
        (local $status i32)
        (memory.fill (i32.const 0x21000) (i32.const 0x61) (i32.const 1000))
        (loop $more
            (local.set $status
                (call $add (i32.const WHERE) (i32.const 16) (i32.const 8) (i32.const 0x21000) (i32.const 1000)))
            (br_if $more (i32.eqz (local.get $status))))
        (call $want (i32.const 2) (local.get $status))
        (i32.const 0))"#;

#[tokio::test]
async fn limits_the_headers_that_filters_add() {
    let floods =
        |callback: &str, map: &str| ADDS_MANY_HEADERS.replace("CALLBACK", callback).replace("WHERE", map);
    let modules = ModuleFolder::new(&[
        ("asks", &floods("proxy_on_request_headers", "0")),
        ("answers", &floods("proxy_on_response_headers", "2")),
        ("one", ADDS_ONE),
    ]);
    let rig = GatewayFixture::new(&modules.proxy_config(&[("asks", ", limits: { cpu: 2s }")])).await;
    // The service of these tests does not accept such a head.
    let refused = rig.send_request(get("/echo/a")).await;
    assert!(matches!(refused.status().as_u16(), 431 | 502), "{}", refused.status());
    assert_eq!(rig.stats("asks").traps, 0);
    rig.reload_filters(&modules, &[("answers", ", limits: { cpu: 2s }")]);
    let mut stream = rig.connect().await;
    stream.write_all(b"GET /echo/a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &answer[..100]);
    assert!((1_000_000..1_100_000).contains(&answer.len()), "{}", answer.len());
    assert_eq!(rig.stats("answers").traps, 0);
    rig.reload_filters(&modules, &[("one", "")]);
    assert_eq!(rig.send_request(get("/echo/a")).await.header("x-filter"), "one");
}
