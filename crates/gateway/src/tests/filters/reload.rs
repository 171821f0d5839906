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
fn both(config: &str) -> [(&'static str, String); 2] {
    ["", ", name: second"].map(|name| ("says", format!(", config: {config}, limits: {{ cpu: 1s }}{name}")))
}

fn put(rig: &GatewayFixture, modules: &ModuleFolder, config: &str) {
    let filters = both(config);
    rig.put(modules, &filters.each_ref().map(|(module, more)| (*module, more.as_str())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reload_during_a_paused_body_drops_and_mixes_nothing() {
    let code = format!("{}{SAYS}", counter());
    let modules = ModuleFolder::new(&[("says", &code)]);
    let one = both("one");
    let rig = Arc::new(
        GatewayFixture::new(&modules.proxied(&one.each_ref().map(|(module, more)| (*module, more.as_str()))))
            .await,
    );
    let mut paused = rig.connect().await;
    let head =
        "POST /echo/paused HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    paused.write_all(format!("{head}4\r\nhalf\r\n").as_bytes()).await.unwrap();
    until(|| rig.counted() > 0).await;
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = (0..6).map(|_| {
        let (rig, over, answered) = (Arc::clone(&rig), Arc::clone(&over), Arc::clone(&answered));
        tokio::spawn(async move {
            let mut said = Vec::new();
            while !over.load(Relaxed) {
                let answer = rig.ask(post("/echo/a", "whole")).await;
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
        until(|| {
            assert!(!load.iter().any(tokio::task::JoinHandle::is_finished), "a request went wrong");
            answered.load(Relaxed) > before + 10
        })
        .await;
        if turn % 4 == 0 {
            modules.put("says", &format!("{code} (data (i32.const 3000) \"{turn}\")"));
        }
        put(&rig, &modules, ["two", "one"][turn % 2]);
    }
    put(&rig, &modules, "two");
    assert_eq!(rig.ask(post("/echo/a", "whole")).await.text(), "two");
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
        let stats = rig.stats(name);
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
    let code = format!("{}{}{LINGERS}", counter(), asks("/wait"));
    let modules = ModuleFolder::new(&[("lingers", &code), ("one", ONE)]);
    let rig = GatewayFixture::new(&modules.proxied(&[("lingers", "")])).await;
    // Without a reload: the exchange ends when the filter is done.
    rig.ask(get("/echo/a")).await;
    rig.upstream.arrived().await;
    assert_eq!(rig.counted(), 0);
    rig.upstream.release();
    until(|| rig.counted() == 1).await;
    rig.upstream.left().await;
    // A reload while it waits: the filter is dropped, and its exchange with it.
    rig.ask(get("/echo/a")).await;
    rig.upstream.arrived().await;
    rig.put(&modules, &[("one", "")]);
    until(|| rig.counted() == 2).await;
    rig.upstream.left().await;
    // A reload while the request is in flight: it ends with the filter that it started with.
    rig.put(&modules, &[("lingers", "")]);
    let waiting = tokio::spawn(rig.asking(get("/echo/wait")));
    rig.upstream.arrived().await;
    rig.put(&modules, &[("one", "")]);
    assert_eq!((rig.ask(get("/echo/a")).await.header("x-filter"), rig.counted()), ("one", 2));
    rig.upstream.release();
    assert_eq!(waiting.await.unwrap().headers("x-filter"), [""; 0]);
    until(|| rig.counted() == 3).await;
    let stats = rig.stats("lingers");
    assert_eq!((stats.traps, stats.failed_requests, stats.calls), (0, 0, 3), "{stats:?}");
}
