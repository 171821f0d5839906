//! Work on long data and on many things at once is done in pieces, between which other tasks run.
//!
//! Tests that count pieces, polls and events instead of time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use services::coop::TURN_BYTES;

use super::*;
use crate::host::ENDED_PER_POLL;

/// A length that takes three parts.
const LONG: usize = 300_000;

/// Bytes that differ from part to part.
fn long_bytes(length: usize) -> Bytes {
    (0..length).map(|number| (number % 251) as u8).collect()
}

/// Sends a request that is answered with this body in one frame. Returns the received body, and the number of
/// polls that it took.
async fn read_through(chain: &Arc<FilterChain>, body: Bytes) -> (Bytes, usize) {
    let handle = async move |_: Request<StreamedServiceBody>| Response::new(body::full(body));
    let response = chain
        .run_http_exchange(get("/"), call_with_timeout(Duration::from_secs(60)), exchange_info(), handle)
        .await
        .unwrap();
    let (mut reading, mut polls) = (pin!(collect_response(response)), 0);
    let answer = poll_fn(|context| {
        polls += 1;
        reading.as_mut().poll(context)
    });
    (answer.await.unwrap().body, polls)
}

#[tokio::test]
async fn long_frames_are_shown_in_parts_each_in_a_poll_of_its_own() {
    let passes = "(i32.const 0)";
    let holds = "(i32.eqz (local.get $end))";
    for (result, is_held) in [(passes, false), (holds, true)] {
        let bench = FilterFixture::new();
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_response_body\") (param i32 i32) (param $end i32) (result i32) {result})"
        ));
        let body = long_bytes(8 * TURN_BYTES);
        let (received, polls) = read_through(&chain, body.clone()).await;
        assert!(received == body, "{result}");
        let shown = bench.take_events().iter().filter(|words| *words == "proxy_on_response_body").count();
        assert_eq!(shown, body.len() / TURN_BYTES, "{result}");
        // A body that is held back arrives before the head.
        assert!(is_held || polls >= shown, "{polls} polls");
    }
}

#[tokio::test]
async fn modules_receive_long_bytes_whole() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_response_body") (param i32 i32) (param $end i32) (result i32)
            (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
            (drop (memory.grow (i32.const 16)))
            (call $want (i32.const 0) (call $buffer (i32.const 1) (i32.const 0) (i32.const 0x7fffffff)
                (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 0x7fffffff)
                (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (i32.const 0))"#,
    );
    let body = long_bytes(LONG);
    assert!(read_through(&chain, body.clone()).await.0 == body);
}

/// Host functions that copy bytes of the module, which are at `SPAN`.
const COPYING_FUNCTIONS: &[(&str, &str)] = &[
    ("proxy_set_shared_data", "(call $want (i32.const 0) (call $set_data «k» SPAN (i32.const 0)))"),
    (
        "proxy_enqueue_shared_queue",
        "(call $want (i32.const 0) (call $register «q» (i32.const 32)))
        (call $want (i32.const 0) (call $enqueue (i32.load (i32.const 32)) SPAN))",
    ),
    (
        "proxy_send_local_response",
        "(call $want (i32.const 0) (call $respond (i32.const 200) «» SPAN ‹› (i32.const -1)))",
    ),
    (
        "proxy_http_call",
        "(call $want (i32.const 0) (call $http_call «auth» ‹:path /yes› SPAN ‹› (i32.const 5000) (i32.const 16)))",
    ),
    (
        "proxy_grpc_call",
        "(call $want (i32.const 0)
            (call $grpc_call «auth» «s» «yes» ‹› SPAN (i32.const 5000) (i32.const 16)))",
    ),
    (
        "proxy_grpc_send",
        "(call $want (i32.const 0) (call $grpc_stream «auth» «s» «chat» ‹› (i32.const 16)))
        (call $want (i32.const 0) (call $grpc_send (i32.load (i32.const 16)) SPAN (i32.const 1)))",
    ),
];

#[tokio::test]
async fn host_functions_that_copy_long_bytes_yield() {
    for (function, code) in COPYING_FUNCTIONS {
        let bench = FilterFixture::new();
        let code = format!(
            "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
                (drop (memory.grow (i32.const 16))) {code} (i32.const 0))"
        );
        let chain = bench
            .single_filter_chain(&code.replace("SPAN", &format!("(i32.const 65536) (i32.const {LONG})")));
        let is_over = || bench.take_events().contains(&format!("{function} OK"));
        let mut asked = Box::pin(send(&chain, get("/")));
        assert!((&mut asked).now_or_never().is_none(), "{function}");
        assert!(!is_over(), "{function}");
        assert_eq!(asked.await.unwrap().status, 200, "{function}");
        assert!(is_over(), "{function}");
    }
}

#[tokio::test]
async fn refuses_headers_above_the_bound_of_one_call() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
            (drop (memory.grow (i32.const 16)))
            (memory.fill (i32.const 65536) (i32.const 0x61) (i32.const {LONG}))
            (call $want (i32.const 2) (call $add (i32.const 0) «x-long» (i32.const 65536) (i32.const {LONG})))
            (call $want (i32.const 2) (call $remove (i32.const 2) (i32.const 65536) (i32.const {LONG})))
            (call $want (i32.const 0) (call $remove (i32.const 2) «x-other»))
            (i32.const 0))"
    ));
    assert_eq!(send(&chain, get("/")).await.unwrap().header("got-x-long"), "");
}

#[tokio::test]
async fn cuts_the_message_of_a_local_response_for_a_grpc_client() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
            (drop (memory.grow (i32.const 16)))
            (memory.fill (i32.const 65536) (i32.const 0x61) (i32.const {LONG}))
            (call $want (i32.const 0)
                (call $respond (i32.const 403) «» (i32.const 65536) (i32.const {LONG}) ‹› (i32.const -1)))
            (i32.const 1))"
    ));
    let mut request = get("/s/m");
    request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let answer = send(&chain, request).await.unwrap();
    assert_eq!((answer.header("grpc-status"), answer.header("grpc-message")), ("7", &*"a".repeat(4096)));
}

#[tokio::test]
async fn logs_a_bounded_number_of_lines_per_write() {
    let bench = FilterFixture::new();
    let code = r#"
        (func $put (param $text i32) (param $length i32)
            (i32.store (i32.const 32) (local.get $text))
            (i32.store (i32.const 36) (local.get $length))
            (call $want (i32.const 0) (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 40))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $put «LINES»)
            (call $want (i32.const 128) (i32.load (i32.const 40)))
            (i32.const 0))"#;
    let chain = bench.single_filter_chain(&code.replace("LINES", &"a\n".repeat(100)));
    send(&chain, get("/")).await.unwrap();
    assert_eq!(bench.take_events().iter().filter(|words| *words == "log a").count(), 64);
}

#[tokio::test]
async fn a_tick_between_two_callbacks_makes_the_second_one_yield() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_context_create") (param i32 i32))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    );
    let engine = chain.plugins()[0].vm.core.module.pre.module().engine().clone();
    assert!(bench.recorder.ticking_engine.set(engine).is_ok());
    let mut asked = Box::pin(send(&chain, get("/")));
    assert!((&mut asked).now_or_never().is_none());
    assert_eq!(asked.await.unwrap().status, 200);
}

#[tokio::test]
async fn other_tasks_run_between_the_messages_of_a_grpc_stream() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 0) (call $grpc_stream «auth» «s» «many» ‹› (i32.const 16)))
            (i32.const 1))
        (func (export "proxy_on_grpc_receive") (param i32 i32 i32))
        (func (export "proxy_on_grpc_close") (param i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#,
    );
    let recorder = Arc::clone(&bench.recorder);
    let counting = tokio::spawn(async move {
        let (mut all, mut most) = (0, 0);
        while all < MESSAGES {
            let mut has_yielded = false;
            poll_fn(|context| match std::mem::replace(&mut has_yielded, true) {
                true => Poll::Ready(()),
                false => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            let new = recorder.take_events().iter().filter(|words| *words == "proxy_on_grpc_receive").count();
            (all, most) = (all + new, most.max(new));
        }
        most
    });
    assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
    let most = counting.await.unwrap();
    assert!(most <= 128, "{most} messages in one poll");
}

/// Counts how often a task is woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn a_trap_wakes_many_requests_in_parts() {
    const COUNT: usize = 2 * ENDED_PER_POLL + 100;
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $property «request\0path» (i32.const 0) (i32.const 4)))
            (if (i32.eq (i32.load8_u offset=1 (i32.load (i32.const 0))) (i32.const 0x74)) (then unreachable))
            (i32.const 1))"#,
    );
    let wakes = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let mut held: Vec<_> = (0..COUNT).map(|_| Box::pin(send(&chain, get("/held")))).collect();
    for asked in &mut held {
        assert!(asked.as_mut().poll(&mut context).is_pending());
        // A callback may not complete in the first poll.
        bench.wait_until(|bench| bench.filters.waiting_callbacks() == 0).await;
    }
    bench.wait_until(|bench| bench.stats().requests == COUNT as u64).await;
    for asked in &mut held {
        assert!(asked.as_mut().poll(&mut context).is_pending());
    }
    wakes.0.store(0, Relaxed);
    let mut trapping = Box::pin(send(&chain, get("/trap")));
    match (&mut trapping).now_or_never() {
        Some(trapped) => {
            assert_eq!(trapped.unwrap_err(), FilterFailure::Trapped("test".into()));
            let woken = wakes.0.load(Relaxed);
            assert!((1..=ENDED_PER_POLL).contains(&woken), "{woken} at once");
        }
        None => assert_eq!(trapping.await.unwrap_err(), FilterFailure::Trapped("test".into())),
    }
    bench.wait_until(|_| wakes.0.load(Relaxed) >= COUNT).await;
    for asked in held {
        assert_eq!(asked.await.unwrap_err(), FilterFailure::Trapped("test".into()));
    }
}
