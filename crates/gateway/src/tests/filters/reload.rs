//! Tests of reloads with other filters or another configuration during exchanges with the old ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Adds its configuration in both phases as `x-filter`, and replaces the response's body with it. Buffers
/// bodies to their ends and counts the pieces of requests.
const SAYS: &str = r#"
    (func $read (call $want (i32.const 0)
        (call $buffer (i32.const 7) (i32.const 0) (i32.const 3) (i32.const 136) (i32.const 140))))
    (func $tell (call $read) (call $want (i32.const 0)
        (call $add (i32.const 2) (i32.const 16) (i32.const 8) (i32.load (i32.const 136)) (i32.const 3))))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (call $tell) (i32.const 0))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (call $count) (i32.eqz (local.get 2)))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (call $tell) (i32.const 0))
    (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
        (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
        (call $read)
        (call $want (i32.const 0) (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 0x7fffffff)
            (i32.load (i32.const 136)) (i32.const 3)))
        (i32.const 0))"#;

/// Two filters of one module, with the same configuration.
fn two_filters(config: &str) -> [(&'static str, String); 2] {
    ["", ", name: second"].map(|name| ("says", format!(", config: {config}, limits: {{ cpu: 1s }}{name}")))
}

fn reload_config(fixture: &GatewayFixture, modules: &ModuleFolder, config: &str) {
    let filters = two_filters(config);
    fixture.reload_filters(modules, &filters.each_ref().map(|(module, more)| (*module, more.as_str())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reload_during_a_paused_body_drops_and_mixes_nothing() {
    let code = format!("{}{SAYS}", counter_module());
    let modules = ModuleFolder::new(&[("says", &code)]);
    let one = two_filters("one");
    let fixture = Arc::new(
        GatewayFixture::new(
            &modules.proxy_config(&one.each_ref().map(|(module, more)| (*module, more.as_str()))),
        )
        .await,
    );
    let mut paused = fixture.connect().await;
    let head =
        "POST /echo/paused HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    paused.write_all(format!("{head}4\r\nhalf\r\n").as_bytes()).await.unwrap();
    wait_until(|| fixture.module_counter() > 0).await;
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = (0..6).map(|_| {
        let (gateway_fixture, over, answered) =
            (Arc::clone(&fixture), Arc::clone(&over), Arc::clone(&answered));
        tokio::spawn(async move {
            let mut said = Vec::new();
            while !over.load(Relaxed) {
                let answer = gateway_fixture.send_request(post("/echo/a", "whole")).await;
                assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text());
                assert_eq!(answer.headers("x-filter"), [answer.text(); 4]);
                said.push(answer.text().to_owned());
                answered.fetch_add(1, Relaxed);
            }
            said
        })
    });
    let load: Vec<_> = load.collect();
    for turn in 0..20 {
        let before = answered.load(Relaxed);
        wait_until(|| {
            assert!(!load.iter().any(tokio::task::JoinHandle::is_finished), "a request went wrong");
            answered.load(Relaxed) > before + 10
        })
        .await;
        if turn % 4 == 0 {
            modules.write_module("says", &format!("{code} (data (i32.const 3000) \"{turn}\")"));
        }
        reload_config(&fixture, &modules, ["two", "one"][turn % 2]);
    }
    reload_config(&fixture, &modules, "two");
    assert_eq!(fixture.send_request(post("/echo/a", "whole")).await.text(), "two");
    over.store(true, Relaxed);
    let mut said = Vec::new();
    for task in load {
        said.extend(task.await.unwrap());
    }
    assert!(["one", "two"].iter().all(|word| said.iter().any(|said| said == word)));
    paused.write_all(b"4\r\ndone\r\n0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    paused.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\none"), "{answer}");
    assert_eq!((answer.matches("x-filter: one").count(), answer.matches("two").count()), (4, 0), "{answer}");
    for name in ["says", "second"] {
        let stats = fixture.stats(name);
        assert_eq!((stats.traps, stats.failed_requests, stats.bypassed_requests), (0, 0, 0), "{stats:?}");
    }
}

/// Is not done before its call is answered; counts each end.
const LINGERS: &str = r#"
    (global $last (mut i32) (i32.const 0))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
    (func (export "proxy_on_done") (param $id i32) (result i32)
        (if (i32.eq (local.get $id) (i32.const 1)) (then (return (i32.const 1))))
        (global.set $last (local.get $id)) (call $ask) (i32.const 0))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (call $want (i32.const 0) (call $effective (global.get $last)))
        (call $want (i32.const 0) (call $done)))
    (func (export "proxy_on_log") (param i32) (call $count))"#;

#[tokio::test]
async fn an_unfinished_exchange_ends_once_also_with_a_reload_in_between() {
    let code = format!("{}{}{LINGERS}", counter_module(), call_module("/wait"));
    let modules = ModuleFolder::new(&[("lingers", &code), ("one", ADDS_ONE)]);
    let fixture = GatewayFixture::new(&modules.proxy_config(&[("lingers", "")])).await;
    // Without a reload: the exchange ends when the filter is done.
    fixture.send_request(get("/echo/a")).await;
    fixture.upstream.wait_until_arrived().await;
    assert_eq!(fixture.module_counter(), 0);
    fixture.upstream.release();
    wait_until(|| fixture.module_counter() == 1).await;
    fixture.upstream.wait_until_ended().await;
    // A reload while it waits: the filter is dropped, and its exchange with it.
    fixture.send_request(get("/echo/a")).await;
    fixture.upstream.wait_until_arrived().await;
    fixture.reload_filters(&modules, &[("one", "")]);
    wait_until(|| fixture.module_counter() == 2).await;
    fixture.upstream.wait_until_ended().await;
    // A reload while the request is in flight: it ends with the filter that it started with.
    fixture.reload_filters(&modules, &[("lingers", "")]);
    let waiting = tokio::spawn(fixture.send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    fixture.reload_filters(&modules, &[("one", "")]);
    assert_eq!(
        (fixture.send_request(get("/echo/a")).await.header("x-filter"), fixture.module_counter()),
        ("one", 2)
    );
    fixture.upstream.release();
    assert_eq!(waiting.await.unwrap().headers("x-filter"), [""; 0]);
    wait_until(|| fixture.module_counter() == 3).await;
    let stats = fixture.stats("lingers");
    assert_eq!((stats.traps, stats.failed_requests, stats.calls), (0, 0, 3), "{stats:?}");
}
