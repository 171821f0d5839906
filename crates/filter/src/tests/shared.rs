//! State that outlives a request: shared data, queues, timers, metrics. Also foreign functions.

use super::*;
use crate::MetricValue;

#[tokio::test]
async fn shares_data_with_compare_and_swap() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const FOUND) (call $get_data «k» (i32.const 0) (i32.const 4) (i32.const 8)))
            (call $want (i32.const 0) (call $set_data «k» «1» (i32.const 0)))
            (call $want (i32.const 0) (call $get_data «k» (i32.const 0) (i32.const 4) (i32.const 8)))
            (call $want (i32.const 0) (call $set_data «k» «2» (i32.load (i32.const 8))))
            (call $want (i32.const 8) (call $set_data «k» «3» (i32.load (i32.const 8))))
            (i32.const 0))"#;
    for (name, vm_id, found) in [("a", "", "1"), ("b", "", "0"), ("c", "other", "1")] {
        let mut filter = bench.filter(name, &code.replace("FOUND", found));
        filter.vm_id = vm_id.to_owned();
        send(&bench.chain(&[filter]), get("/")).await.unwrap();
    }
}

const QUEUE: &str = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $register «q» (i32.const 32))) (i32.const 1))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 7) (call $dequeue (i32.load (i32.const 32)) (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $enqueue (i32.load (i32.const 32)) «item»))
            (i32.const 1))
        (func (export "proxy_on_queue_ready") (param i32) (param $queue i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $dequeue (local.get $queue) (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-item»)
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#;

#[tokio::test]
async fn notifies_consumers_of_queue_items() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(QUEUE);
    assert_eq!(send(&chain, get("/")).await.unwrap().header("got-x-item"), "item");
}

#[tokio::test(start_paused = true)]
async fn consumers_removed_by_a_reload_get_no_notifications() {
    let bench = FilterFixture::new();
    let mut filter = bench.filter("queue", QUEUE);
    filter.vm_id = "one".to_owned();
    let before = bench.chain(&[filter.clone()]);
    filter.config = "next".into();
    let chain = bench.chain(&[filter]);
    for _ in 0..2 {
        assert_eq!(send(&before, get("/")).await.unwrap().header("got-x-item"), "item");
    }
    chain.start();
    drop(before);
    for _ in 0..3 {
        assert_eq!(send(&chain, get("/")).await.unwrap().header("got-x-item"), "item");
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_a_consumer_removed_by_a_reload_reach_the_next_one() {
    let bench = FilterFixture::new();
    let mut filter = bench.filter(
        "queue",
        r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $register «q» (i32.const 32))) (i32.const 1))
        (func (export "proxy_on_queue_ready") (param i32) (param $queue i32)
            (call $want (i32.const 0) (call $dequeue (local.get $queue) (i32.const 0) (i32.const 4))))"#,
    );
    filter.vm_id = "one".to_owned();
    let before = bench.chain(&[filter.clone()]);
    filter.config = "next".into();
    let after = bench.chain(&[filter]);
    after.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let queues = &bench.filters.queues;
    let id = queues.resolve("one", "q").unwrap();
    // The previous chain's root context is notified first, and has ended when its turn comes.
    occupy(&after);
    drop(before);
    queues.enqueue(id, "item".into()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queues.dequeue(id), Err(crate::abi::HostStatus::Empty));
    let notifications = bench.take_events().iter().filter(|event| *event == "proxy_on_queue_ready").count();
    assert_eq!(notifications, 1);
}

#[tokio::test(start_paused = true)]
async fn timers_tick_only_after_the_start() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (global $ticks (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $tick (i32.const 100))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (global.set $ticks (i32.add (global.get $ticks) (i32.const 1)))
            (if (i32.eq (global.get $ticks) (i32.const 3)) (then
                (call $want (i32.const 0) (call $tick (i32.const 0))))))"#,
    );
    let ticks = || bench.take_events().iter().filter(|words| *words == "proxy_on_tick").count();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(ticks(), 0);
    chain.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(ticks(), 3);
}

#[tokio::test]
async fn metrics_are_counted_across_instances() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $define (i32.const 0) «hits» (i32.const 0)))
            (call $want (i32.const 0) (call $increment (i32.load (i32.const 0)) (i64.const 2)))
            (call $want (i32.const 2) (call $increment (i32.load (i32.const 0)) (i64.const -1)))
            (call $want (i32.const 1) (call $increment (i32.const 99) (i64.const 1)))
            (i32.const 0))"#,
    );
    send(&chain, get("/")).await.unwrap();
    send(&chain, get("/")).await.unwrap();
    let metrics = bench.filters.metrics();
    assert_eq!((metrics[0].name.as_str(), &metrics[0].value), ("hits", &MetricValue::Counter(4)));
}

#[tokio::test]
async fn calls_foreign_functions_and_reports_unknown_ones() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $foreign «compress» «abcabcabc» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $foreign «uncompress»
                (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-text»)
            (call $want (i32.const 3) (call $foreign «uncompress» «nonsense» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $foreign «clear_route_cache» «» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $foreign «set_envoy_filter_state» «\u{a}\u{1}p\u{12}\u{1}v»
                (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $property «p» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 1) (call $foreign «no_such» «» (i32.const 0) (i32.const 4)))
            (i32.const 0))"#
            .replace("\\u{a}", "\n")
            .replace("\\u{1}", "\u{1}")
            .replace("\\u{12}", "\u{12}")
            .as_str(),
    );
    assert_eq!(send(&chain, get("/")).await.unwrap().header("got-x-text"), "abcabcabc");
}

#[tokio::test]
async fn bounds_host_functions_that_are_not_metered() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $foreign «compress» «0123456789» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 2) (call $foreign «compress» «0123456789a» (i32.const 0) (i32.const 4)))
            (i32.store (i32.const 4) (i32.const 1000))
            (i32.store (i32.const 12) (i32.const 100000))
            (call $want (i32.const 0) (call $write (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 16)))
            (call $want (i32.const 65536) (i32.load (i32.const 16)))
            (i32.const 0))"#;
    let mut filter = bench.filter("bounded", code);
    filter.limits.buffer = services::BytesConfig(10);
    assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200);
}

/// Zeros in the zlib format, compressed to a thousandth of their length.
fn zlib_bomb(length: usize) -> Vec<u8> {
    use std::io::Write;

    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..length / 1024 {
        encoder.write_all(&[0; 1024]).unwrap();
    }
    encoder.write_all(&[0; 1024][..length % 1024]).unwrap();
    encoder.finish().unwrap()
}

/// A filter that decompresses the request's body, and traps if the status is not the expected one.
fn uncompressing_filter(bench: &FilterFixture, buffer: u64, status: u32) -> FilterConfig {
    let code = r#"
        (func (export "proxy_on_request_body") (param i32) (param $length i32) (param $end i32) (result i32)
            (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
            (call $want (i32.const 0) (call $buffer (i32.const 0) (i32.const 0) (local.get $length)
                (i32.const 0) (i32.const 4)))
            (call $want (i32.const STATUS) (call $foreign «uncompress»
                (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
            (i32.const 0))"#;
    let mut filter = bench.filter("slow", &code.replace("STATUS", &status.to_string()));
    filter.limits.buffer = services::BytesConfig(buffer);
    filter.limits.cpu = services::DurationConfig::from_millis(60_000);
    filter
}

#[tokio::test]
async fn refuses_decompression_beyond_the_buffer_limit() {
    let buffer = 64 << 10;
    for (length, status) in [(buffer, 0), (buffer + 1, 10), (64 * buffer, 10)] {
        let bench = FilterFixture::new();
        let chain = bench.chain(&[uncompressing_filter(&bench, buffer as u64, status)]);
        assert_eq!(send(&chain, post(zlib_bomb(length))).await.unwrap().status, 200, "{length}");
    }
}

#[tokio::test]
async fn foreign_functions_end_at_the_time_limit_of_the_callback() {
    let bench = FilterFixture::new();
    let mut filter = uncompressing_filter(&bench, 32 << 20, 0);
    filter.limits.cpu = services::DurationConfig::from_millis(1);
    let chain = bench.chain(&[filter]);
    let end = send(&chain, post(zlib_bomb(16 << 20))).await;
    assert_eq!(end.unwrap_err(), FilterFailure::Trapped("slow".into()));
    assert_eq!(bench.stats().traps, 1);
}

#[tokio::test]
async fn foreign_functions_do_not_block_other_requests() {
    let bench = FilterFixture::new();
    let slow = bench.chain(&[uncompressing_filter(&bench, 8 << 20, 10)]);
    let fast = bench.chain(&[bench.filter(
        "fast",
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    )]);
    let (body, ended) = (zlib_bomb(16 << 20), Mutex::new(Vec::new()));
    tokio::join!(
        async {
            assert_eq!(send(&slow, post(body)).await.unwrap().status, 200);
            ended.lock().unwrap().push("slow");
        },
        async {
            assert_eq!(send(&fast, get("/")).await.unwrap().status, 200);
            ended.lock().unwrap().push("fast");
        }
    );
    assert_eq!(*ended.lock().unwrap(), ["fast", "slow"]);
}

/// Encodes a field of a Protocol Buffers message, with a length in three bytes.
fn encode_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = [bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8 | 0x80, (bytes.len() >> 14) as u8];
    [&[number << 3 | 2][..], &length, bytes].concat()
}

#[tokio::test]
async fn long_signatures_are_made_beside_the_serving_thread() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_body") (param i32) (param $length i32) (param $end i32) (result i32)
            (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
            (call $want (i32.const 0) (call $buffer (i32.const 0) (i32.const 0) (local.get $length)
                (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $foreign «sign»
                (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
            (call $want (i32.const 0x0108) (i32.load16_u (i32.load (i32.const 8))))
            (i32.const 0))"#,
    );
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let argument =
        [encode_field(1, b"sha256"), encode_field(4, key.as_bytes()), encode_field(3, &[b'x'; 40_000])]
            .concat();
    let is_over = || bench.take_events().contains(&"proxy_call_foreign_function OK".to_owned());
    let mut asked = Box::pin(send(&chain, post(argument)));
    assert!((&mut asked).now_or_never().is_none());
    assert!(!is_over());
    assert_eq!(asked.await.unwrap().status, 200);
    assert!(is_over());
}

#[tokio::test(start_paused = true)]
async fn timers_resume_after_a_trap_without_requests() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $tick (i32.const 100))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32) unreachable)"#,
    );
    chain.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(bench.stats().traps > 2, "{:?}", bench.stats());
    drop(chain);
    let stats = bench.stats();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.stats(), stats);
}
