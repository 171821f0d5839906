//! Long texts: they are read, checked, composed and stored in the pool.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::Request;
use offload::{JobRequest, SHORT_TEXT};
use script::HandlerMethod::{Get, Post, Put};
use services::{RequestCall, ServiceConfig, body};
use testkit::misbehaving_upstream;

use super::fixture::{HandwrittenService, ScriptFixture, default_settings, handwritten_service};

/// The number of jobs of a kind.
fn jobs_of_kind(fixture: &ScriptFixture, kind: &str) -> u64 {
    fixture.scripts.offload.stats().kinds.get(kind).map_or(0, |kind| kind.jobs)
}

#[tokio::test]
async fn a_long_request_and_its_long_response_are_read_in_the_pool() {
    let fixture = handwritten_service()
        .resource("/echo")
        .stateless(Post, "function (query, response, $r) { $r.respond(query.$body); }")
        .start()
        .await;
    fixture.wait_until_settled().await;
    for (length, count) in [(1000, 0), (SHORT_TEXT + 1, 1)] {
        let (before, text) = (
            [jobs_of_kind(&fixture, "script-text"), jobs_of_kind(&fixture, "script-frame")],
            "x".repeat(length),
        );
        let request = Request::post("/echo").header("content-type", "text/plain");
        let answer = fixture.send(request.body(body::full(text.clone())).expect("a request")).await;
        let answer = http_body_util::BodyExt::collect(answer.expect("an answer").into_body()).await;
        assert_eq!(answer.expect("a body").to_bytes(), text);
        assert_eq!(jobs_of_kind(&fixture, "script-text"), before[0] + count);
        assert_eq!(jobs_of_kind(&fixture, "script-frame"), before[1] + count);
    }
}

#[tokio::test]
async fn many_parameters_are_read_in_the_pool() {
    let fixture = handwritten_service()
        .resource("/names")
        .stateless(Get, "function (query, response, $r) { $r.respond({query}); }")
        .start()
        .await;
    let parameters: String = (0..5000).map(|number| format!("n{number}&")).collect();
    let value = fixture.json(&format!("/names?{parameters}")).await;
    assert_eq!(value["query"].as_object().map(serde_json::Map::len), Some(5000));
    assert_eq!(jobs_of_kind(&fixture, "script-text"), 1);
}

#[tokio::test]
async fn many_headers_of_a_response_are_read_in_the_pool() {
    let fixture = handwritten_service()
        .resource("/headers")
        .stateless(Get, "function (query, response, $r) { $r.answer(200, {...query}); }")
        .start()
        .await;
    for (count, jobs_of_headers) in [(2, 0), (2000, 1)] {
        let parameters: String = (0..count).map(|number| format!("x{number}=1&")).collect();
        let request = Request::get(format!("/headers?{parameters}")).body(body::empty()).expect("a request");
        let answer = fixture.send(request).await.expect("an answer");
        assert_eq!(answer.headers().keys().filter(|name| name.as_str().starts_with('x')).count(), count);
        assert_eq!(jobs_of_kind(&fixture, "script-answer"), jobs_of_headers);
    }
}

#[tokio::test]
async fn a_long_response_that_no_code_reads_is_checked_in_the_pool() {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services = BTreeMap::from([("up".to_owned(), ServiceConfig::with_url(upstream.url()))]);
    let hands_on = "async function (query, response, $r) { const g = $s.resource(['http://up/json?n=20000']);
        $r.respond({got: await $r.unread(3, g, 0, [])}); }";
    let fixture = handwritten_service().resource("/json").stateless(Get, hands_on).start_with(wish).await;
    assert_eq!(fixture.json("/json").await["got"].as_array().map(Vec::len), Some(20_000));
    for kind in ["script-text", "script-check"] {
        assert_eq!(jobs_of_kind(&fixture, kind), 1, "{kind}");
    }
}

#[tokio::test]
async fn long_responses_are_composed_in_the_pool() {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services = BTreeMap::from([("up".to_owned(), ServiceConfig::with_url(upstream.url()))]);
    let text = "service test { res a = 'http://up/json?n=@'
      res '/short' on GET { respond { one: a.get(1) } }
      res '/long' on GET { respond { one: a.get(1), many: a.get(20000) } } }";
    let fixture = ScriptFixture::from_source(text, wish).await;
    assert_eq!(fixture.json("/short").await["one"].as_array().map(Vec::len), Some(1));
    assert_eq!(jobs_of_kind(&fixture, "script-answer"), 0);
    assert_eq!(fixture.json("/long").await["many"].as_array().map(Vec::len), Some(20_000));
    assert!(
        jobs_of_kind(&fixture, "script-answer") >= 2,
        "one reads the response, another composes the answer"
    );
    assert_eq!(fixture.script.stats().inline_runs, 2);
}

#[tokio::test]
async fn a_long_write_is_applied_in_the_pool_and_survives_a_restart() {
    let writer = || {
        handwritten_service()
            .resource("/list")
            .cell("list", true, Some("() => []"))
            .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.list.length); }")
            .writer(Put, 0, "function (query, response, $r) { $r.cells.list = query.items; }")
            .writer(Post, 0, "function (query, response, $r) { $r.cells.list.push(1); }")
    };
    let fixture = writer().start().await;
    let items = vec!["1"; 100_000].join(",");
    assert_eq!(fixture.request_with_json("PUT", "/list", &format!("{{\"items\":[{items}]}}")).await.0, 204);
    assert!(jobs_of_kind(&fixture, "script-state") >= 1);
    assert_eq!(fixture.request("POST", "/list").await.0, 204);
    assert_eq!(fixture.get("/list").await, "100001");
    let folder = fixture.shut_down().await;
    let script_fixture = writer().start_in(folder, default_settings()).await;
    assert_eq!(script_fixture.get("/list").await, "100001");
}

#[tokio::test]
async fn a_url_that_is_too_long_is_refused() {
    let calls = "async function (query, response, $r) {
        try { await $r.call(1, $s.resource(['/' + 'x'.repeat(70000)]), 0, []); } catch (error) { $r.respond(error.status); } }";
    let fixture = handwritten_service().resource("/calls").stateless(Get, calls).start().await;
    assert_eq!(fixture.get("/calls").await, "403");
}

/// Returns a counter whose writer responds with the given number of headers, with an invalid one, or with a
/// text of the given length.
fn counter_service() -> HandwrittenService {
    let put = "function (query, response, $r) {
        const n = ++$r.cells.n, headers = query.invalid ? {'a b': 1} : {};
        for (let i = 0; i < query.headers; i++) headers['x' + i] = 1;
        $r.answer(200, headers, query.text ? 'x'.repeat(query.text) : n); }";
    handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, put)
}

#[tokio::test]
async fn a_writer_with_an_invalid_response_writes_nothing() {
    let fixture = counter_service().start().await;
    assert_eq!(fixture.request("PUT", "/n").await, (200, "1".into()));
    for (headers, jobs_of_headers) in [(0, 0), (2000, 1)] {
        let refused = fixture.request("PUT", &format!("/n?invalid=1&headers={headers}")).await;
        assert_eq!(refused, (500, "script-answer".into()));
        assert_eq!(jobs_of_kind(&fixture, "script-answer"), jobs_of_headers);
    }
    assert_eq!(fixture.request("PUT", "/n?headers=2000").await, (200, "2".into()));
    assert_eq!(fixture.get("/n").await, "2");
}

#[tokio::test]
async fn a_writer_whose_response_the_pool_does_not_read_writes_nothing() {
    let fixture = counter_service().start().await;
    assert_eq!(fixture.request("PUT", "/n").await, (200, "1".into()));
    let (release, blocked) = mpsc::channel::<()>();
    let payer = RequestCall::unlimited().quota_key().for_responses().exempt();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let request = JobRequest { kind: "test", payer, estimate: Duration::ZERO, deadline };
    let pool = fixture.scripts.offload.clone();
    let mut queued = vec![pool.run(request, move |_| blocked.recv().is_ok()).boxed()];
    while queued.last_mut().unwrap().now_or_never().is_none() {
        queued.push(pool.run(request, |_| true).boxed());
    }
    for path in ["/n?headers=2000", "/n?text=200000"] {
        assert_eq!(fixture.request("PUT", path).await, (503, "answer-unfinished".into()), "{path}");
    }
    assert_eq!(fixture.request("PUT", "/n").await, (200, "2".into()), "other runs go on");
    drop(release);
    drop(queued);
    assert_eq!(fixture.request("PUT", "/n?headers=2000").await, (200, "3".into()));
    assert_eq!(fixture.get("/n").await, "3");
}
