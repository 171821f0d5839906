//! The loss of workers, and the recovery of their runs.

use futures_util::future::join;
use script::HandlerMethod::{Get, Put};
use testkit::{misbehaving_upstream, with_timeout};

use super::fixture::{default_settings, handwritten_service};

/// A handler that calls the path in its parameter.
const CALLING_HANDLER: &str = "async function (query, response, $r) { $r.respond(await $r.call(1, $s.resource(['http://up' + query.path]), query.$method === 'PUT' ? 3 : 0, [])); }";

#[tokio::test]
async fn a_run_without_effects_is_repeated_and_any_other_is_503() {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services.insert("up".into(), services::ServiceConfig::with_url(upstream.url()));
    let fixture = handwritten_service()
        .resource("/get")
        .stateless(Get, CALLING_HANDLER)
        .stateless(Put, CALLING_HANDLER)
        .resource("/loop")
        .stateless(Get, "function () { for (;;); }")
        .start_with(wish)
        .await;
    fixture.wait_ready().await;
    let bad = async {
        upstream.wait_for_requests("/hang", 2).await;
        fixture.request("GET", "/loop").await
    };
    let late = async {
        upstream.wait_for_requests("/hang", 3).await;
    };
    tokio::select! {
        ((code, _), ()) = join(bad, late) => assert_eq!(code, 500, "the safe run was repeated"),
        other = join(fixture.request("GET", "/get?path=/hang"), async {
            let lost = fixture.request("PUT", "/get?path=/hang").await;
            assert_eq!(lost, (503, "worker-lost".into()));
            std::future::pending::<()>().await;
        }) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_heap_is_reported_with_its_limit_and_a_hint() {
    let mut wish = default_settings();
    wish.scripts.memory = services::BytesConfig(32 << 20);
    // Filling a heap usually takes longer than the default limit of CPU time.
    wish.options.limits.cpu = services::DurationConfig::from_secs(60);
    wish.options.limits.timeout = services::DurationConfig::from_secs(60);
    let holds = "function () { const held = []; for (;;) held.push([held.length]); }";
    let fixture = handwritten_service().resource("/holds").stateless(Get, holds).start_with(wish).await;
    let request = http::Request::get("/holds").body(services::body::empty()).expect("a request");
    let problem = fixture.send(request).await.expect_err("no answer");
    assert_eq!((problem.status().as_u16(), problem.code()), (503, "worker-lost"));
    assert!(problem.to_string().ends_with("it ran out of memory, at its limit of 32 MiB"), "{problem}");
    assert!(
        problem.hint().contains("hold fewer things at once, or raise `scripts.memory`"),
        "{}",
        problem.hint()
    );
}

#[tokio::test]
async fn a_suspended_worker_is_ended_and_replaced() {
    let mut wish = default_settings();
    wish.options.limits.timeout = services::DurationConfig::from_millis(1000);
    let stops =
        "function () { spawn('sh', ['-c', 'kill -STOP ' + process.pid]); return new Promise(() => {}); }";
    let fixture = handwritten_service()
        .head("const { spawn } = await $s.import('node:child_process');")
        .resource("/stops")
        .stateless(Get, stops)
        .resource("/ok")
        .stateless(Get, "function (query, response, $r) { $r.respond('ok'); }")
        .start_with(wish)
        .await;
    fixture.wait_ready().await;
    assert_eq!(fixture.request("GET", "/stops").await, (504, "script-wall".into()));
    with_timeout("an answer of another worker", async {
        while fixture.request("GET", "/ok").await.0 != 200 {}
    })
    .await;
    assert!(fixture.script.stats().restarts > 0);
}

#[tokio::test]
async fn the_loss_of_a_worker_preserves_committed_writes_and_drops_others() {
    let fixture = handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, "function (query, response, $r) { $r.cells.n++; if (query.loop) for (;;); $r.respond($r.cells.n); }")
        .start()
        .await;
    assert_eq!(fixture.request("PUT", "/n").await, (200, "1".into()));
    assert_eq!(fixture.request("PUT", "/n?loop=1").await, (500, "script-time".into()));
    assert_eq!(fixture.get("/n").await, "1");
    assert_eq!(fixture.request("PUT", "/n").await, (200, "2".into()));
}

#[tokio::test]
async fn a_run_ends_when_its_client_disconnects_unless_it_is_a_writer() {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services.insert("up".into(), services::ServiceConfig::with_url(upstream.url()));
    let writes = "async function (query, response, $r) { $r.cells.n++;
        await $r.call(1, $s.resource(['http://up/slow?ms=50']), 0, []); }";
    let fixture = handwritten_service()
        .resource("/get")
        .stateless(Get, CALLING_HANDLER)
        .resource("/inside")
        .stateless(Get, "async function (query, response, $r) { $r.respond(await $r.call(1, $s.resource(['/get?path=/stall']), 0, [])); }")
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, writes)
        .start_with(wish)
        .await;
    for (path, called) in [("/get?path=/hang", "/hang"), ("/inside", "/stall")] {
        tokio::select! {
            answer = fixture.request("GET", path) => panic!("{answer:?}"),
            () = upstream.wait_for_request(called) => {}
        }
        upstream.wait_for_close(called).await;
    }
    tokio::select! {
        answer = fixture.request("PUT", "/n") => panic!("{answer:?}"),
        () = upstream.wait_for_request("/slow") => {}
    }
    fixture.wait_idle().await;
    assert_eq!(fixture.get("/n").await, "1");
}
