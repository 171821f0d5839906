//! Callbacks that run for many ticks: they yield, requests of the same virtual machine wait in order, and
//! others do not wait.
//!
//! These tests do not depend on timing. A module spins until a key of the shared data is set by a request
//! that runs concurrently, which on one thread requires the callback to yield.

use super::*;

/// A function that spins until the shared data has a key, and one that sets a key.
const SPIN: &str = r#"
    (func $spin (param $key i32) (param $length i32)
        (loop $more
            (br_if $more (i32.eq (i32.const 1)
                (call $get_data (local.get $key) (local.get $length) (i32.const 48) (i32.const 52) (i32.const 56))))))
    (func $let (param $key i32) (param $length i32)
        (call $want (i32.const 0) (call $set_data (local.get $key) (local.get $length) «» (i32.const 0))))
    (func $is_path (param $letter i32) (result i32)
        (drop (call $property «request\0path» (i32.const 0) (i32.const 4)))
        (i32.eq (i32.load8_u offset=1 (i32.load (i32.const 0))) (local.get $letter)))"#;

/// A callback that spins for requests with a path that begins with `s`.
const SPIN_AT_HEAD: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (call $is_path (i32.const 0x73)) (then (call $spin «go»)))
        (i32.const 0))"#;

/// A filter whose module has a generous time limit.
fn patient_filter(bench: &FilterFixture, name: &str, code: &str) -> FilterConfig {
    let mut filter = bench.filter(name, &format!("{SPIN} {code}"));
    filter.limits.cpu = services::DurationConfig::from_millis(60_000);
    filter
}

/// A chain of a filter that sets `key` with each request, which releases a spinning module.
fn releasing_chain(bench: &FilterFixture, key: &str) -> Arc<FilterChain> {
    let code = format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
            (call $let «{key}») (i32.const 0))"
    );
    bench.chain(&[patient_filter(bench, "releasing", &code)])
}

/// A module that spins in one callback of requests with a path that begins with `s`.
fn spinning_module(callback: &str, signature: &str, result: &str) -> String {
    let log = if callback.ends_with("_log") { "" } else { "(func (export \"proxy_on_log\") (param i32))" };
    format!(
        "(func (export \"{callback}\") {signature}
            (if (call $is_path (i32.const 0x73)) (then (call $let «{callback}») (call $spin «go»)))
            {result})
        {log}"
    )
}

const SPINNING: &[(&str, &str, &str)] = &[
    ("proxy_on_context_create", "(param i32 i32)", ""),
    ("proxy_on_request_headers", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_request_body", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_request_trailers", "(param i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_headers", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_body", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_trailers", "(param i32 i32) (result i32)", "(i32.const 0)"),
];

/// A request with a body in two pieces, and trailers.
fn request_with_trailers(path: &str) -> Request<StreamedServiceBody> {
    let trailers = http::HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    let body =
        piecewise_body(&["one", "two"]).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
    Request::post(path).header("host", "example.org").body(body).unwrap()
}

async fn mirror(request: Request<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    Response::new(request.into_body())
}

async fn send_mirrored(chain: &Arc<FilterChain>, path: &str) -> Result<Bytes, FilterFailure> {
    let response = chain
        .run_http_exchange(request_with_trailers(path), RequestCall::unlimited(), exchange_info(), mirror)
        .await?;
    Ok(collect_response(response).await.unwrap().body)
}

#[tokio::test]
async fn spinning_callbacks_do_not_block_other_requests() {
    for (callback, signature, result) in SPINNING {
        let bench = FilterFixture::new();
        let code = spinning_module(callback, signature, result);
        let slow = bench.chain(&[patient_filter(&bench, "slow", &code)]);
        let fast = releasing_chain(&bench, "go");
        let ended = Mutex::new(Vec::new());
        tokio::join!(
            async {
                assert_eq!(send_mirrored(&slow, "/spin").await.unwrap(), "onetwo", "{callback}");
                ended.lock().unwrap().push("slow");
            },
            async {
                assert_eq!(send(&fast, get("/")).await.unwrap().status, 200);
                ended.lock().unwrap().push("fast");
            }
        );
        assert_eq!(*ended.lock().unwrap(), ["fast", "slow"], "{callback}");
        assert_eq!(trap_count(&bench), 0, "{callback}");
    }
}

#[tokio::test]
async fn callbacks_at_the_end_of_a_request_yield() {
    for (callback, signature, result) in [
        ("proxy_on_done", "(param i32) (result i32)", "(i32.const 1)"),
        ("proxy_on_log", "(param i32)", ""),
        ("proxy_on_delete", "(param i32)", ""),
    ] {
        let bench = FilterFixture::new();
        let code = format!(
            "{} (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) (i32.const 0))",
            spinning_module(callback, signature, result)
        );
        let slow = bench.chain(&[patient_filter(&bench, "slow", &code)]);
        let fast = releasing_chain(&bench, "go");
        // The client has its response, and the callback continues in the background.
        assert_eq!(send(&slow, get("/spin")).await.unwrap().status, 200, "{callback}");
        assert_eq!(send(&fast, get("/")).await.unwrap().status, 200, "{callback}");
        // The next request waits for it.
        assert_eq!(send(&slow, get("/next")).await.unwrap().status, 200, "{callback}");
        assert_eq!(trap_count(&bench), 0, "{callback}");
    }
}

#[tokio::test]
async fn after_a_long_end_of_a_stream_the_others_end_in_polls_of_their_own() {
    let bench = FilterFixture::new();
    let code = format!(
        "{} (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) (i32.const 0))",
        spinning_module("proxy_on_log", "(param i32)", "")
    );
    let slow = bench.chain(&[patient_filter(&bench, "slow", &code), patient_filter(&bench, "also", &code)]);
    let fast = releasing_chain(&bench, "go");
    let begun = Mutex::new(0);
    let count = |bench: &FilterFixture| {
        let mut begun = begun.lock().unwrap();
        *begun += bench.take_events().iter().filter(|words| *words == "proxy_on_log").count();
        *begun
    };
    assert_eq!(send(&slow, get("/spin")).await.unwrap().status, 200);
    assert_eq!(count(&bench), 1);
    bench.wait_until(|bench| count(bench) == 2).await;
    send(&fast, get("/")).await.unwrap();
    assert_eq!(send(&slow, get("/next")).await.unwrap().status, 200);
    assert_eq!(trap_count(&bench), 0);
}

#[tokio::test]
async fn background_callbacks_yield() {
    let tick = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $tick (i32.const 1))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (call $want (i32.const 0) (call $tick (i32.const 0)))
            (call $let «begun») (call $spin «go») (call $let «ended»))"#;
    let queue = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $register «q» (i32.const 32)))
            (call $want (i32.const 0) (call $enqueue (i32.load (i32.const 32)) «x»)) (i32.const 1))
        (func (export "proxy_on_queue_ready") (param i32 i32)
            (call $let «begun») (call $spin «go») (call $let «ended»))"#;
    let answer = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $http_call «auth» ‹:method GET|:path /yes|:authority a› «» ‹›
                (i32.const 5000) (i32.const 16)))
            (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $let «begun») (call $spin «go») (call $let «ended»))"#;
    let grpc = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $grpc_call «auth» «s» «yes» ‹› «ping» (i32.const 5000) (i32.const 16)))
            (i32.const 0))
        (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
            (call $let «begun») (call $spin «go») (call $let «ended»))"#;
    for code in [tick, queue, answer, grpc] {
        let bench = FilterFixture::new();
        let slow = bench.chain(&[patient_filter(&bench, "slow", code)]);
        slow.start();
        let wait = |key: &str| {
            let code = format!(
                "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
                    (call $want (i32.const 0)
                        (call $get_data «{key}» (i32.const 48) (i32.const 52) (i32.const 56)))
                    (i32.const 0))"
            );
            // A request succeeds if it finds the key; it is repeated until it does.
            bench.chain(&[patient_filter(&bench, key, &code)])
        };
        let (chain, filter_chain, fast) = (wait("begun"), wait("ended"), releasing_chain(&bench, "go"));
        let request = tokio::spawn({
            let slow = Arc::clone(&slow);
            async move { send(&slow, get("/")).await }
        });
        wait_until_passed(&chain).await;
        send(&fast, get("/")).await.unwrap();
        wait_until_passed(&filter_chain).await;
        request.await.unwrap().unwrap();
        assert_eq!(trap_count(&bench), 0, "{code}");
    }
}

#[tokio::test]
async fn requests_wait_until_the_callback_of_their_call_has_returned() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 0) (call $http_call «auth» ‹:method GET|:path /yes|:authority a› «» ‹›
                (i32.const 60000) (i32.const 16)))
            (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $spin «go»)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $respond (i32.const 401) «» «» ‹› (i32.const -1))))"#;
    let slow = bench.chain(&[patient_filter(&bench, "slow", code)]);
    let fast = releasing_chain(&bench, "go");
    let is_served = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let serving = Arc::clone(&is_served);
    let handle = async move |request: Request<StreamedServiceBody>| {
        serving.store(true, std::sync::atomic::Ordering::Relaxed);
        echo(request).await
    };
    let mut asked = Box::pin(slow.run_http_exchange(
        get("/"),
        call_with_timeout(Duration::from_secs(60)),
        exchange_info(),
        handle,
    ));
    assert!((&mut asked).now_or_never().is_none());
    bench.wait_until(|bench| bench.take_events().contains(&"proxy_on_http_call_response".to_owned())).await;
    // The callback has yielded and may still deny the request, which is polled for another reason.
    assert!((&mut asked).now_or_never().is_none());
    send(&fast, get("/")).await.unwrap();
    assert_eq!(asked.await.unwrap().status(), 401);
    assert!(!is_served.load(std::sync::atomic::Ordering::Relaxed));
}

/// The number of traps of the filter `slow`.
fn trap_count(bench: &FilterFixture) -> u64 {
    bench.filters.stats().into_iter().find(|stats| stats.filter == "slow").map_or(0, |stats| stats.traps)
}

/// Sends requests until the filter lets one pass.
async fn wait_until_passed(chain: &Arc<FilterChain>) {
    while send(chain, get("/")).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_of_one_instance_run_in_order() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (if (call $is_path (i32.const 0x73)) (then (call $spin «go»)))
            (call $want (i32.const 0) (call $property «request\0path» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $log (i32.const 2) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
            (i32.const 0))"#;

    let slow = bench.chain(&[patient_filter(&bench, "slow", code)]);
    let fast = releasing_chain(&bench, "go");
    let paths = ["/spin", "/a", "/b", "/c", "/d"];
    let asked: Vec<_> = paths
        .into_iter()
        .map(|path| {
            let slow = Arc::clone(&slow);
            tokio::spawn(async move { send(&slow, get(path)).await.map(|answer| answer.status) })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(asked.iter().all(|asked| !asked.is_finished()));
    send(&fast, get("/")).await.unwrap();
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap(), 200);
    }
    let logged: Vec<_> = bench
        .take_events()
        .into_iter()
        .filter_map(|words| Some(words.strip_prefix("log ")?.to_owned()))
        .collect();
    assert_eq!(logged, paths);
}

#[tokio::test]
async fn cancelled_requests_do_not_interrupt_callbacks() {
    let bench = FilterFixture::new();
    // A callback sets a flag when it begins and clears it when it ends, so that an interrupted one is
    // detected.
    let code = r#"
        (global $inside (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (global.get $inside))
            (global.set $inside (i32.const 1))
            (if (call $is_path (i32.const 0x73)) (then (call $let «begun») (call $spin «go»)))
            (global.set $inside (i32.const 0))
            (i32.const 0))
        (func (export "proxy_on_log") (param i32)
            (call $want (i32.const 0) (global.get $inside))
            (call $want (i32.const 0) (call $log (i32.const 2) «logged»)))"#;
    let slow = bench.chain(&[patient_filter(&bench, "slow", code)]);
    let fast = releasing_chain(&bench, "go");
    let mut given_up = Box::pin(send(&slow, get("/spin")));
    assert!((&mut given_up).now_or_never().is_none());
    drop(given_up);
    // One request is cancelled in the queue, the other one is answered.
    let mut in_line = Box::pin(send(&slow, get("/line")));
    assert!((&mut in_line).now_or_never().is_none());
    let mut next = Box::pin(send(&slow, get("/next")));
    assert!((&mut next).now_or_never().is_none());
    drop(in_line);
    send(&fast, get("/")).await.unwrap();
    assert_eq!(next.await.unwrap().status, 200);
    let logged = Mutex::new(0);
    let is_over = |bench: &FilterFixture| {
        *logged.lock().unwrap() += bench.take_events().iter().filter(|words| *words == "log logged").count();
        *logged.lock().unwrap() == 2
    };
    bench.wait_until(is_over).await;
    let stats = bench.filters.stats().into_iter().find(|stats| stats.filter == "slow").unwrap();
    assert_eq!((stats.traps, stats.requests), (0, 2), "the cancelled request never ran a callback");
}

#[tokio::test]
async fn a_trap_after_many_ticks_fails_only_its_request() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (if (call $is_path (i32.const 0x73)) (then (call $spin «go») unreachable))
            (i32.const 0))"#;
    let slow = bench.chain(&[patient_filter(&bench, "slow", code)]);
    let fast = releasing_chain(&bench, "go");
    let ((), bad, good) = tokio::join!(
        async { assert_eq!(send(&fast, get("/")).await.unwrap().status, 200) },
        send(&slow, get("/spin")),
        send(&slow, get("/good")),
    );
    assert_eq!(bad.unwrap_err(), FilterFailure::Trapped("slow".into()));
    assert_eq!(good.unwrap().status, 200, "the request uses the next instance");
    assert_eq!(trap_count(&bench), 1);
}

#[tokio::test]
async fn callbacks_above_the_time_limit_do_not_affect_others() {
    let bench = FilterFixture::new();
    let spins = "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) (loop (br 0)) (i32.const 0))";
    let slow = bench.chain(&[bench.filter("slow", spins)]);
    let fast = releasing_chain(&bench, "nothing");
    let ended = Mutex::new(Vec::new());
    tokio::join!(
        async {
            assert_eq!(send(&slow, get("/")).await.unwrap_err(), FilterFailure::Trapped("slow".into()));
            ended.lock().unwrap().push("slow");
        },
        async {
            assert_eq!(send(&fast, get("/")).await.unwrap().status, 200);
            ended.lock().unwrap().push("fast");
        }
    );
    assert_eq!(*ended.lock().unwrap(), ["fast", "slow"]);
}

#[tokio::test]
async fn refuses_requests_only_while_the_queue_is_full() {
    let bench = FilterFixture::new();
    let mut filter = patient_filter(&bench, "slow", SPIN_AT_HEAD);
    // A refusal because of a full queue is not a trap, so `on_trap` does not apply.
    filter.on_trap = crate::OnTrap::Open;
    let slow = bench.chain(&[filter]);
    let fast = releasing_chain(&bench, "go");
    let most = crate::vm::MAX_WAITING;
    let mut asked: Vec<_> = std::iter::once("/spin")
        .chain(std::iter::repeat_n("/next", most))
        .map(|path| {
            let slow = Arc::clone(&slow);
            let mut asked = async move { send(&slow, get(path)).await }.boxed();
            assert!((&mut asked).now_or_never().is_none());
            asked
        })
        .collect();
    assert_eq!(send(&slow, get("/more")).await.unwrap_err(), FilterFailure::Busy("slow".into()));
    // A cancelled request frees its place.
    drop(asked.pop());
    let next = loop {
        let mut next = Box::pin(send(&slow, get("/next")));
        match (&mut next).now_or_never() {
            None => break next,
            Some(refused) => assert_eq!(refused.unwrap_err(), FilterFailure::Busy("slow".into())),
        }
        tokio::task::yield_now().await;
    };
    send(&fast, get("/")).await.unwrap();
    for asked in asked {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    assert_eq!(next.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_full_queue_has_room_for_other_clients() {
    let bench = FilterFixture::new();
    let slow = bench.chain(&[patient_filter(&bench, "slow", SPIN_AT_HEAD)]);
    let fast = releasing_chain(&bench, "go");
    let waiting = |client: &'static str, path: &'static str| {
        let slow = Arc::clone(&slow);
        let mut asked = async move { send_as(client, &slow, get(path)).await }.boxed();
        assert!((&mut asked).now_or_never().is_none());
        asked
    };
    let spins = waiting("attacker", "/spin");
    let most = crate::vm::MAX_WAITING;
    let mut asked: Vec<_> = (0..most).map(|_| waiting("attacker", "/next")).collect();
    let next = waiting("neighbour", "/next");
    assert_eq!(asked.pop().unwrap().await.unwrap_err(), FilterFailure::Busy("slow".into()));
    send(&fast, get("/")).await.unwrap();
    for asked in asked.into_iter().chain([spins, next]) {
        assert_eq!(asked.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn queued_streams_end_before_their_root_context() {
    let bench = FilterFixture::new();
    let shared = |name: &str, code: &str| {
        let mut filter = patient_filter(&bench, name, code);
        filter.vm_id = "one".to_owned();
        filter
    };
    let at_end = r#"
        (func (export "proxy_on_log") (param i32))
        (func (export "proxy_on_delete") (param i32))"#;
    let slow = shared("slow", &format!("{SPIN_AT_HEAD} {at_end}"));
    let fast = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $let «go») (i32.const 0))"#;
    let (chain, other) = (bench.chain(std::slice::from_ref(&slow)), bench.chain(&[slow]));
    let fast = bench.chain(&[shared("fast", fast)]);
    let seen = Mutex::new(Vec::new());
    let has_seen = |bench: &FilterFixture, names: &[&str], count: usize| {
        let mut seen = seen.lock().unwrap();
        seen.extend(bench.take_events().into_iter().filter(|words| names.contains(&words.as_str())));
        seen.len() == count
    };
    let streams = [(); 3].map(|()| {
        let filter_chain = Arc::clone(&chain);
        let open = async move {
            filter_chain
                .run_http_exchange(get("/"), RequestCall::unlimited(), exchange_info(), |_| {
                    std::future::pending()
                })
                .await
        };
        let mut open = open.boxed();
        assert!((&mut open).now_or_never().is_none());
        open
    });
    bench.wait_until(|bench| has_seen(bench, &["proxy_on_request_headers"], 3)).await;
    seen.lock().unwrap().clear();
    let mut spins = Box::pin(send(&other, get("/spin")));
    assert!((&mut spins).now_or_never().is_none());
    drop((streams, chain));
    send(&fast, get("/")).await.unwrap();
    assert_eq!(spins.await.unwrap().status, 200);
    bench.wait_until(|bench| has_seen(bench, &["proxy_on_log", "proxy_on_delete"], 9)).await;
    let ends = seen.lock().unwrap().clone();
    // The root context's end is the only one without a log.
    let root = ends.windows(2).position(|pair| pair == ["proxy_on_delete", "proxy_on_delete"]);
    assert_eq!(root, Some(5), "{ends:?}");
}

#[tokio::test]
async fn queued_requests_wait_no_longer_than_their_deadline() {
    let bench = FilterFixture::new();
    let slow = bench.chain(&[patient_filter(&bench, "slow", SPIN_AT_HEAD)]);
    let mut spins = Box::pin(send(&slow, get("/spin")));
    assert!((&mut spins).now_or_never().is_none());
    let answered =
        slow.run_http_exchange(get("/late"), call_with_timeout(Duration::ZERO), exchange_info(), echo).await;
    assert_eq!(answered.unwrap_err(), FilterFailure::Busy("slow".into()));
    send(&releasing_chain(&bench, "go"), get("/")).await.unwrap();
    assert_eq!(spins.await.unwrap().status, 200);
}

/// A module that makes a call before it releases a message, in a callback, and spins for requests of `/spin`.
fn calling_module(callback: &str, resumes: u32) -> String {
    format!(
        "(global $id (mut i32) (i32.const 0))
        (global $pieces (mut i32) (i32.const 0))
        (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
            (if (call $is_path (i32.const 0x73)) (then (call $let «spinning») (call $spin «go»)))
            (i32.const 0))
        {callback}
        (func (export \"proxy_on_http_call_response\") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $continue (i32.const {resumes}))))"
    )
    .replace(
        "ASK",
        "(call $want (i32.const 0) (call $http_call «auth» ‹:path /gate› «» ‹› (i32.const 50000) (i32.const 16)))",
    )
}

/// Queues the response to a call and a piece of a body, in this order, for an instance that spins.
async fn queue_response_and_piece(
    bench: &FilterFixture,
    slow: &Arc<FilterChain>,
    asked: &mut std::pin::Pin<Box<impl Future>>,
    sender: &mut http_body_util::channel::Sender<Bytes, services::body::BodyError>,
) {
    // A callback may not complete in the first poll, so the request has to be polled until its call is made.
    let mut told = std::pin::pin!(bench.test_service.request_received.notified());
    while told.as_mut().now_or_never().is_none() {
        assert!(asked.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let spins = tokio::spawn({
        let slow = Arc::clone(slow);
        async move { send(&slow, get("/spin")).await.unwrap() }
    });
    let waiting = |bench: &FilterFixture| bench.filters.waiting_callbacks();
    bench.wait_until(|bench| bench.filters.shared_data("").get(b"spinning").is_some()).await;
    bench.test_service.gate.notify_one();
    bench.wait_until(|bench| waiting(bench) == 1).await;
    sender.send_data(Bytes::from_static(b"two")).await.unwrap();
    while waiting(bench) < 2 {
        assert!(asked.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    send(&releasing_chain(bench, "go"), get("/")).await.unwrap();
    spins.await.unwrap();
}

#[tokio::test]
async fn body_callbacks_do_not_revoke_the_resume_of_a_head() {
    let bench = FilterFixture::new();
    let callback = "(func (export \"proxy_on_response_headers\") (param $id i32) (param i32 i32) (result i32)
            (if (call $is_path (i32.const 0x73)) (then (return (i32.const 0))))
            (global.set $id (local.get $id)) ASK (i32.const 1))
        (func (export \"proxy_on_response_body\") (param i32 i32 i32) (result i32) (i32.const 0))";
    let slow = bench.chain(&[patient_filter(&bench, "slow", &calling_module(callback, 1))]);
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let handle = async move |_: Request<StreamedServiceBody>| Response::new(body.boxed_unsync());
    let mut asked = Box::pin(slow.run_http_exchange(
        get("/"),
        call_with_timeout(Duration::from_secs(10)),
        exchange_info(),
        handle,
    ));
    assert!((&mut asked).now_or_never().is_none());
    queue_response_and_piece(&bench, &slow, &mut asked, &mut sender).await;
    drop(sender);
    assert_eq!(collect_response(asked.await.unwrap()).await.unwrap().body, "two");
}

#[tokio::test]
async fn resuming_a_piece_does_not_release_a_queued_one() {
    let bench = FilterFixture::new();
    let callback = "(func (export \"proxy_on_request_body\") (param $id i32) (param i32 i32) (result i32)
            (global.set $pieces (i32.add (global.get $pieces) (i32.const 1)))
            (if (i32.eq (global.get $pieces) (i32.const 1)) (then (global.set $id (local.get $id)) ASK))
            (i32.const 1))";
    let slow = bench.chain(&[patient_filter(&bench, "slow", &calling_module(callback, 0))]);
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let request = Request::post("/").body(body.boxed_unsync()).unwrap();
    sender.send_data(Bytes::from_static(b"one")).await.unwrap();
    let handle = async |_: Request<StreamedServiceBody>| -> Response<StreamedServiceBody> {
        panic!("the request is still held back")
    };
    let mut asked = Box::pin(slow.run_http_exchange(
        request,
        call_with_timeout(Duration::from_secs(3)),
        exchange_info(),
        handle,
    ));
    assert!((&mut asked).now_or_never().is_none());
    queue_response_and_piece(&bench, &slow, &mut asked, &mut sender).await;
    drop(sender);
    // The module's last action was to pause, and nothing resumes it.
    assert_eq!(asked.await.unwrap_err(), FilterFailure::Paused("slow".into()));
}
