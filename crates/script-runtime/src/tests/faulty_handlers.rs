//! Misbehaving handlers: each is contained, without an effect on others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join;
use handler::HandlerRequest;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use script::HandlerMethod::{Get, Put};
use services::{RequestBudget, RequestCall, body};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use testkit::with_timeout;

use super::fixture::{
    FixtureSettings, HandwrittenService, ScriptFixture, default_settings, handwritten_service,
};

/// A call of a harmless handler.
const OK: &str = "await $r.call(1, $s.resource(['/ok']), 0, [])";

/// A handler that waits for a call that never ends.
const WAITING_HANDLER: &str =
    "async function (query, response, $r) { await $r.call(1, $s.resource(['http://up/hang']), 0, []); }";

fn faulty_service() -> HandwrittenService {
    handwritten_service()
        .resource("/ok")
        .stateless(Get, "function (query, response, $r) { $r.respond('ok'); }")
        .resource("/throws")
        .stateless(Get, "function () { throw new TypeError('oops'); }")
        .resource("/throws-nothing")
        .stateless(Get, "function () { throw undefined; }")
        .resource("/cycle")
        .stateless(Get, "function (query, response, $r) { const a = {}; a.a = a; $r.respond(a); }")
        .resource("/big")
        .stateless(Get, "function (query, response, $r) { $r.respond({a: 1n}); }")
        .resource("/twice")
        .stateless(Get, "function (query, response, $r) { $r.respond('first'); $r.respond('second'); }")
        .resource("/status")
        .stateless(Get, "function (query, response, $r) { response.status = 99; $r.respond('x'); }")
        .resource("/asked")
        .stateless(Put, "function (query, response, $r) { response.status = query.status; $r.respond('x'); }")
        .resource("/asked-later")
        .stateless(Put, &format!("async function (query, response, $r) {{ {OK}; response.status = query.status; $r.respond('x'); {OK}; }}"))
        .resource("/never")
        .stateless(Get, "async function () { await new Promise(() => {}); }")
        .resource("/loop")
        .stateless(Get, "function () { for (;;); }")
        .resource("/reject")
        .stateless(Get, "function (query, response, $r) { Promise.reject(new Error('later')); $r.respond('ok'); }")
        .resource("/exit")
        .stateless(Get, "function (query, response, $r) { process.exit(3); }")
        .resource("/damage")
        .stateless(Get, "function (query, response, $r) { delete Array.prototype.constructor; $r.respond('no'); }")
        .resource("/damage-long")
        .stateless(Get, "function () { delete Array.prototype.constructor; throw new Error('x'.repeat(1 << 20)); }")
        .resource("/damage-later")
        .stateless(Get, "function (query, response, $r) { (async () => { await 0; delete Array.prototype.constructor; })(); $r.respond('ok'); }")
}

/// Starts the service that [`WAITS`] calls. Returns settings that contain it.
async fn settings_with_upstream() -> (MisbehavingUpstream, FixtureSettings) {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services.insert("up".into(), services::ServiceConfig::with_url(upstream.url()));
    (upstream, wish)
}

/// Starts [`bad`] with [`WAITS`] as another resource.
async fn start_with_waiting() -> (MisbehavingUpstream, ScriptFixture) {
    let (upstream, wish) = settings_with_upstream().await;
    let fixture = faulty_service().resource("/waits").stateless(Get, WAITING_HANDLER).start_with(wish).await;
    fixture.wait_ready().await;
    (upstream, fixture)
}

/// Awaits a future during a run of `/waits`, which must not end before it.
async fn while_waiting<T>(fixture: &ScriptFixture, future: impl Future<Output = T>) -> T {
    tokio::select! {
        output = future => output,
        answer = fixture.request("GET", "/waits") => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_script_error_is_500_and_the_next_request_succeeds() {
    let fixture = faulty_service().start().await;
    for (path, code) in [
        ("/throws", "script-threw"),
        ("/throws-nothing", "script-threw"),
        ("/cycle", "script-answer"),
        ("/big", "script-answer"),
        ("/status", "script-answer"),
    ] {
        assert_eq!(fixture.request("GET", path).await, (500, code.into()), "{path}");
        assert_eq!(fixture.get("/ok").await, "ok");
    }
    assert_eq!(fixture.get("/twice").await, "first", "rule 13: the first answer is used");
    assert_eq!(fixture.get("/reject").await, "ok");
    assert_eq!(fixture.script.stats().restarts, 0);
}

#[tokio::test]
async fn an_invalid_status_is_500_and_the_next_request_succeeds() {
    let fixture = faulty_service().start().await;
    for path in ["/asked", "/asked-later"] {
        for status in
            [r#"{"valueOf":1,"toString":1}"#, "{}", "[404]", "true", r#""x""#, "99", "199", "1000", "404.5"]
        {
            let body = format!(r#"{{"status":{status}}}"#);
            assert_eq!(
                fixture.request_with_json("PUT", path, &body).await,
                (500, "script-answer".into()),
                "{path} {status}"
            );
            assert_eq!(fixture.get("/ok").await, "ok");
        }
        for (status, sent) in [("404", 404), (r#""404""#, 404), ("999", 999), ("null", 200)] {
            let body = format!(r#"{{"status":{status}}}"#);
            assert_eq!(
                fixture.request_with_json("PUT", path, &body).await,
                (sent, "x".into()),
                "{path} {status}"
            );
        }
    }
    assert_eq!(fixture.script.stats().restarts, 0);
}

#[tokio::test]
async fn a_handler_that_never_ends_is_cancelled_after_its_time_limit() {
    let mut wish = default_settings();
    wish.options.limits.timeout = services::DurationConfig::from_millis(200);
    let fixture = faulty_service().start_with(wish).await;
    fixture.wait_ready().await;
    assert_eq!(fixture.request("GET", "/never").await, (504, "script-wall".into()));
    assert_eq!(fixture.get("/ok").await, "ok");
    assert_eq!(fixture.script.stats().restarts, 0);
}

#[tokio::test]
async fn a_route_s_deadline_limits_the_response_but_not_the_work_after_it() {
    let (upstream, wish) = settings_with_upstream().await;
    let behind = "async function (query, response, $r) { $r.respond('ok');
        await $r.call(1, $s.resource(['http://up/hang']), 0, []).catch(() => {}); }";
    let fixture = faulty_service().resource("/behind").stateless(Get, behind).start_with(wish).await;
    fixture.wait_ready().await;
    let within = |time| {
        let unlimited = RequestCall::unlimited();
        let budget = RequestBudget::new_at(Instant::now(), time, u32::MAX, u64::MAX, usize::MAX);
        RequestCall { budget: Arc::new(budget), ..unlimited }
    };
    let ask = |path: &str, time| {
        let request = Request::get(path).body(body::empty()).expect("a request");
        with_timeout("an answer", fixture.script.handle(HandlerRequest::new(request, within(time))))
    };
    let time = Duration::from_secs(3);
    assert!(ask("/behind", time).await.is_ok());
    upstream.wait_for_request("/hang").await;
    let problem = ask("/never", time).await.expect_err("a problem");
    assert_eq!((problem.status().as_u16(), problem.code()), (504, "script-deadline"));
    assert!(problem.to_string().contains("3s"), "{problem}");
    assert_eq!(fixture.scripts.runs_in_flight(), 1, "the first run continues beyond its deadline");
}

#[tokio::test]
async fn an_endless_loop_ends_with_its_worker_and_other_runs_are_repeated() {
    let fixture = faulty_service().start().await;
    fixture.wait_ready().await;
    let ((status, code), ok) = join(fixture.request("GET", "/loop"), fixture.get("/ok")).await;
    assert_eq!((status, &*code, &*ok), (500, "script-time", "ok"));
    assert_eq!(fixture.get("/ok").await, "ok");
}

#[tokio::test]
async fn a_handler_that_ended_two_workers_runs_alone_afterwards() {
    let (upstream, fixture) = start_with_waiting().await;
    for _ in 0..2 {
        assert_eq!(fixture.request("GET", "/loop").await.1, "script-time");
        assert_eq!(fixture.get("/ok").await, "ok");
    }
    let third = async {
        upstream.wait_for_request("/hang").await;
        fixture.request("GET", "/loop").await
    };
    assert_eq!(while_waiting(&fixture, third).await.0, 500);
    assert_eq!(fixture.get("/ok").await, "ok");
    assert_eq!(upstream.hits("/hang"), 1, "the other run was not repeated");
}

#[tokio::test]
async fn a_handler_that_damaged_two_workers_runs_alone_afterwards() {
    let (upstream, fixture) = start_with_waiting().await;
    for (path, waiting) in [("/damage", 1), ("/damage-long", 2)] {
        for _ in 0..2 {
            assert_eq!(fixture.request("GET", path).await, (500, "script-threw".into()));
            assert_eq!(fixture.get("/ok").await, "ok");
        }
        let third = async {
            upstream.wait_for_requests("/hang", waiting).await;
            fixture.request("GET", path).await
        };
        assert_eq!(while_waiting(&fixture, third).await, (500, "script-threw".into()));
        assert_eq!(fixture.get("/ok").await, "ok");
        assert_eq!(upstream.hits("/hang"), waiting, "the other run was not repeated");
    }
}

#[tokio::test]
async fn damage_by_a_run_that_has_ended_fails_no_other_run() {
    let fixture = faulty_service().start().await;
    fixture.wait_ready().await;
    for _ in 0..3 {
        assert_eq!(fixture.get("/damage-later").await, "ok");
        assert_eq!(fixture.get("/ok").await, "ok");
    }
}

#[tokio::test]
async fn a_handler_that_damaged_two_workers_after_its_runs_runs_alone_afterwards() {
    let (upstream, fixture) = start_with_waiting().await;
    let damage = async |times| {
        for _ in 0..times {
            assert_eq!(fixture.get("/damage-later").await, "ok");
            assert_eq!(fixture.get("/ok").await, "ok");
        }
    };
    damage(2).await;
    let more = async {
        upstream.wait_for_request("/hang").await;
        damage(3).await;
    };
    while_waiting(&fixture, more).await;
    assert_eq!(upstream.hits("/hang"), 1, "the other run was not repeated");
}

#[tokio::test]
async fn the_last_repetition_of_a_run_is_not_alone_if_other_runs_ended_its_workers() {
    let (upstream, fixture) = start_with_waiting().await;
    let losses = async {
        for (waiting, path) in [(1, "/damage"), (2, "/damage-long"), (3, "/damage")] {
            upstream.wait_for_requests("/hang", waiting).await;
            assert_eq!(fixture.request("GET", path).await, (500, "script-threw".into()));
        }
        upstream.wait_for_requests("/hang", 4).await;
        assert_eq!(fixture.get("/ok").await, "ok");
        assert_eq!(
            fixture.script.stats().workers,
            1,
            "many such runs do not wait for the workers of single runs"
        );
    };
    while_waiting(&fixture, losses).await;
}

#[tokio::test]
async fn a_program_that_damages_workers_while_they_run_handlers_is_broken() {
    let mut fixture = faulty_service().start().await;
    fixture.wait_ready().await;
    assert_eq!(fixture.get("/ok").await, "ok");
    let head = "await new Promise((resolve) => setTimeout(resolve, 30)); delete Array.prototype.constructor;";
    fixture.replace(faulty_service().head(head));
    let requests = async { while fixture.get("/ok").await == "ok" {} };
    tokio::select! {
        () = fixture.wait_until_settled() => {}
        () = requests => panic!("a response of the new program"),
    }
    assert_eq!(fixture.get("/ok").await, "ok", "the previous program remains in force");
    fixture.replace(
        faulty_service()
            .resource("/new")
            .stateless(Get, "function (query, response, $r) { $r.respond('new'); }"),
    );
    fixture.expect_after_deployment("/new", "new").await;
}

#[tokio::test]
async fn a_handler_runs_alone_even_if_its_clients_disconnect_before_their_workers_end() {
    let (upstream, wish) = settings_with_upstream().await;
    let folder = tempfile::tempdir().expect("a folder");
    let entered = folder.path().join("entered");
    let loops = format!("function () {{ writeFileSync({entered:?}, ''); for (;;); }}");
    let fixture = faulty_service()
        .head("const { writeFileSync } = await $s.import('node:fs');")
        .resource("/waits")
        .stateless(Get, WAITING_HANDLER)
        .resource("/loops")
        .stateless(Get, &loops)
        .start_with(wish)
        .await;
    fixture.wait_ready().await;
    for _ in 0..2 {
        tokio::select! {
            answer = fixture.request("GET", "/loops") => assert_eq!(answer.1, "script-time"),
            () = with_timeout("a run", async { while !entered.exists() { tokio::task::yield_now().await } }) => {}
        }
        std::fs::remove_file(&entered).expect("a file");
        assert_eq!(fixture.get("/ok").await, "ok");
    }
    let third = async {
        upstream.wait_for_request("/hang").await;
        fixture.request("GET", "/loops").await
    };
    assert_eq!(while_waiting(&fixture, third).await, (500, "script-time".into()));
    assert_eq!(fixture.get("/ok").await, "ok");
    assert_eq!(upstream.hits("/hang"), 1, "the other run was not repeated");
}

#[tokio::test]
async fn a_handler_that_ends_workers_while_it_waits_for_a_call_runs_alone_afterwards() {
    let (upstream, wish) = settings_with_upstream().await;
    let ends = "async function (query, response, $r) {
        $r.call(1, $s.resource(['http://up/hang']), 0, []);
        await $r.call(1, $s.resource(['http://up/slow?ms=0']), 0, []);
        spawnSync('sh', ['-c', 'kill -KILL ' + process.pid]); }";
    let fixture = faulty_service()
        .head("const { spawnSync } = await $s.import('node:child_process');")
        .resource("/ends")
        .stateless(Get, ends)
        .start_with(wish)
        .await;
    fixture.wait_ready().await;
    for runs in [4, 5] {
        assert_eq!(fixture.request("GET", "/ends").await, (503, "worker-lost".into()));
        assert_eq!(upstream.hits("/slow"), runs);
    }
}

#[tokio::test]
async fn an_initial_value_that_ends_its_worker_is_evaluated_alone_afterwards() {
    let ends = "() => { spawnSync('sh', ['-c', 'echo >> started; kill -KILL ' + process.pid]); }";
    let fixture = handwritten_service()
        .head("const { spawnSync } = await $s.import('node:child_process');")
        .resource("/n")
        .cell("n", true, Some(ends))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .start()
        .await;
    fixture.wait_ready().await;
    for started in [2, 3] {
        assert_eq!(fixture.request("GET", "/n").await, (503, "worker-lost".into()));
        let lines = std::fs::read(fixture.folder().join("started")).expect("a file");
        assert_eq!(lines.len(), started, "evaluated once in a shared worker");
    }
}

#[tokio::test]
async fn a_handler_that_ends_the_process_is_detected() {
    let fixture = faulty_service().start().await;
    fixture.wait_ready().await;
    let (status, code) = fixture.request("GET", "/exit").await;
    assert!((500..=503).contains(&status), "{status} {code}");
    assert_eq!(fixture.get("/ok").await, "ok");
}

#[tokio::test]
async fn endless_recursion_of_handlers_is_stopped() {
    let mut wish = default_settings();
    wish.scripts.internal_calls = 500;
    let again = "async function (query, response, $r) { $r.respond(await $r.call(1, $s.resource(['/again']), 0, [])); }";
    let fixture = faulty_service().resource("/again").stateless(Get, again).start_with(wish).await;
    fixture.wait_ready().await;
    let ((status, code), ok) = join(fixture.request("GET", "/again"), fixture.get("/ok")).await;
    assert_eq!((status, &*code, &*ok), (502, "script-resource", "ok"));
}

#[tokio::test]
async fn rule_8_a_value_that_state_cannot_contain_is_refused() {
    let fixture = handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, "function (query, response, $r) { $r.cells.n = () => 1; }")
        .start()
        .await;
    assert_eq!(fixture.request("PUT", "/n").await, (500, "script-state".into()));
    assert_eq!(fixture.get("/n").await, "0");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_clients_fault() {
    let fixture = faulty_service().start().await;
    let half = http_body::Frame::data(bytes::Bytes::from("{"));
    let pieces = [Ok(half), Err(body::BodyError::from("broken off"))];
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    let problem = fixture.send(Request::put("/asked").body(body).expect("a request")).await;
    let problem = problem.expect_err("a problem");
    assert_eq!((problem.code(), problem.status().as_u16()), ("body-broken", 400));
    assert_eq!(problem.fault(), services::FaultParty::Client);
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_is_an_error() {
    let fixture = handwritten_service()
        .head("throw new Error('no');")
        .resource("/")
        .stateless(Get, "function () {}")
        .start()
        .await;
    assert_eq!(fixture.request("GET", "/").await, (500, "script-broken".into()));
}

#[tokio::test]
async fn a_writer_that_never_ends_is_rolled_back_and_the_next_one_runs() {
    let mut wish = default_settings();
    wish.options.limits.timeout = services::DurationConfig::from_millis(300);
    let fixture = handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, "async function (query, response, $r) { $r.cells.n++; if (query.waits) await new Promise(() => {}); $r.respond($r.cells.n); }")
        .start_with(wish)
        .await;
    fixture.wait_ready().await;
    assert_eq!(fixture.request("PUT", "/n").await, (200, "1".into()));
    assert_eq!(fixture.request("PUT", "/n?waits=1").await, (504, "script-wall".into()));
    assert_eq!(fixture.request("PUT", "/n").await, (200, "2".into()));
    assert_eq!(fixture.get("/n").await, "2");
    assert_eq!(fixture.script.stats().restarts, 0);
}
