//! Resource calls: within the service, to services, and to hosts.

use std::collections::BTreeMap;

use script::HandlerMethod::{Get, Put};
use serde_json::json;
use services::ServiceConfig;
use testkit::misbehaving_upstream;

use super::fixture::{HandwrittenService, ScriptFixture, default_settings, handwritten_service};

/// Returns a handler that makes a call and responds with its result.
fn calling_handler(url: &str, method: u8) -> String {
    format!(
        "async function (query, response, $r) {{ const g = $s.resource({url});
        try {{ $r.respond({{got: await $r.call(3, g, {method}, [])}}); }}
        catch (error) {{ $r.respond({{status: error.status, message: error.message, name: error.name}}); }} }}"
    )
}

/// Returns a handler that passes the response of a call through.
fn passing_handler(url: &str) -> String {
    format!("function (query, response, $r) {{ return $r.pass(3, $s.resource({url}), 0, []); }}")
}

async fn start_with_upstream(
    service: HandwrittenService,
    hosts: &[&str],
) -> (ScriptFixture, misbehaving_upstream::MisbehavingUpstream) {
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    wish.services = BTreeMap::from([("up".to_owned(), ServiceConfig::with_url(upstream.url()))]);
    wish.options.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    (service.start_with(wish).await, upstream)
}

#[tokio::test]
async fn rule_16_a_call_gives_text_parsed_json_or_an_error_with_a_status() {
    let service = handwritten_service()
        .resource("/json")
        .stateless(Get, &calling_handler("['http://up/json?n=2']", 0))
        .resource("/status")
        .stateless(Get, &calling_handler("['http://up/status/418']", 0))
        .resource("/redirect")
        .stateless(Get, &calling_handler("['http://up/redirect']", 0))
        .resource("/reset")
        .stateless(Get, &calling_handler("['http://up/reset']", 0));
    let (fixture, _upstream) = start_with_upstream(service, &[]).await;
    assert_eq!(fixture.json("/json").await["got"].as_array().map(Vec::len), Some(2));
    let error = fixture.json("/status").await;
    assert_eq!(
        (&error["status"], &error["message"]),
        (&json!(418), &json!("GET http://up/status/418 answered 418"))
    );
    assert_eq!(fixture.json("/redirect").await["got"]["path"], "/echo", "redirects are followed");
    assert_eq!(fixture.json("/reset").await["status"], 502);
}

#[tokio::test]
async fn an_unread_response_is_passed_through_unchanged_if_it_is_valid() {
    let hands_on = |url: &str, text: &str| {
        format!(
            "async function (query, response, $r) {{ const g = $s.resource([{url}]);
            $r.respond({{got: await $r.unread(3, g, 2, ['{text}'])}}); }}"
        )
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let service = handwritten_service()
        .resource("/deep")
        .stateless(Get, &hands_on("'http://up/body'", &deep))
        .resource("/json")
        .stateless(Get, &hands_on("'http://up/body'", r#"[1.0, 12345678901234567890, "é"]"#))
        .resource("/none")
        .stateless(Get, &hands_on("'http://up/body'", r#"[1.0, "é"#))
        .resource("/own")
        .stateless(script::HandlerMethod::Post, "function (query, response, $r) { $r.respond(query.$body) }")
        .resource("/inside")
        .stateless(Get, &hands_on("'/own'", "text"));
    let (rig, _upstream) = start_with_upstream(service, &[]).await;
    for (path, body) in [
        ("/deep", &*format!(r#"{{"got":{deep}}}"#)),
        ("/json", r#"{"got":[1.0, 12345678901234567890, "é"]}"#),
        ("/inside", r#"{"got":"text"}"#),
    ] {
        assert_eq!(rig.get(path).await, body, "{path}");
    }
    assert_eq!(rig.request("GET", "/none").await, (502, "script-resource".into()));
}

#[tokio::test]
async fn rule_16_a_response_with_invalid_json_fails_its_call() {
    let catches = |word: &str| {
        format!(
            "async function (query, response, $r) {{ const g = $s.resource(['http://up/body']);
            try {{ $r.respond({{got: await $r.{word}(3, g, 2, [query.text])}}); }}
            catch (error) {{ $r.respond({{status: error.status, name: error.name, body: error.body}}); }} }}"
        )
    };
    let written = handwritten_service()
        .resource("/call")
        .stateless(Get, &catches("call"))
        .resource("/unread")
        .stateless(Get, &catches("unread"));
    let (rig, _upstream) = start_with_upstream(written, &[]).await;
    for path in ["/call", "/unread"] {
        for (text, body) in [
            ("", ""),
            ("%7B", "{"),
            ("%5B1,%5D", "[1,]"),
            ("%7B%7D%00", "{}\0"),
            ("%EF%BB%BF", ""),
            ("%C3%A4", "ä"),
        ] {
            let failed = json!({"status": 502, "name": "ResourceError", "body": body});
            assert_eq!(rig.json(&format!("{path}?text={text}")).await, failed, "{path}: {body}");
        }
        assert_eq!(rig.json(&format!("{path}?text=%EF%BB%BF%5B1%5D")).await, json!({"got": [1]}), "{path}");
    }
}

#[tokio::test]
async fn rule_15_only_services_and_allowed_hosts_are_called() {
    let upstream = misbehaving_upstream::start().await;
    let url = format!("['http://{}/echo']", upstream.address());
    let host = upstream.address().to_string();
    let handlers = || {
        handwritten_service()
            .resource("/host")
            .stateless(Get, &calling_handler(&url, 0))
            .resource("/odd")
            .stateless(Get, &calling_handler("['ftp://up/']", 0))
    };
    let closed = handlers().start().await;
    assert_eq!(closed.json("/host").await["status"], 403);
    assert_eq!(closed.json("/odd").await["status"], 403);
    assert_eq!(upstream.connections(), 0);
    let (fixture, _other) = start_with_upstream(handlers(), &[&host]).await;
    assert_eq!(fixture.json("/host").await["got"]["path"], "/echo");
}

#[tokio::test]
async fn rule_16_an_uncaught_error_is_502_or_504_after_a_timeout() {
    let bare = |url: &str| {
        format!("async function (query, response, $r) {{ await $r.call(3, $s.resource({url}), 0, []); }}")
    };
    let service = handwritten_service()
        .resource("/reset")
        .stateless(Get, &bare("['http://up/reset']"))
        .resource("/status")
        .stateless(Get, &bare("['http://up/status/404']"))
        .resource("/hang")
        .stateless(Get, &bare("['http://slow/hang']"));
    let upstream = misbehaving_upstream::start().await;
    let mut wish = default_settings();
    let slow = ServiceConfig {
        timeout: services::DurationConfig::from_millis(50),
        ..ServiceConfig::with_url(upstream.url())
    };
    wish.services = BTreeMap::from([
        ("up".to_owned(), ServiceConfig::with_url(upstream.url())),
        ("slow".to_owned(), slow),
    ]);
    let fixture = service.start_with(wish).await;
    assert_eq!(fixture.request("GET", "/reset").await, (502, "script-resource".into()));
    assert_eq!(fixture.request("GET", "/status").await, (502, "script-resource".into()));
    assert_eq!(fixture.request("GET", "/hang").await, (504, "script-resource-timeout".into()));
}

#[tokio::test]
async fn rule_16_a_bare_call_is_passed_through_with_status_and_type() {
    let service = handwritten_service()
        .resource("/json")
        .stateless(Get, &passing_handler("['http://up/json?n=2']"))
        .resource("/status")
        .stateless(Get, &passing_handler("['http://up/status/418']"))
        .resource("/own")
        .stateless(Get, &passing_handler("['/json']"));
    let (fixture, _upstream) = start_with_upstream(service, &[]).await;
    assert_eq!(fixture.json("/json").await.as_array().map(Vec::len), Some(2));
    assert_eq!(fixture.request("GET", "/status").await.0, 418);
    assert_eq!(fixture.json("/own").await.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn rule_14_calls_within_the_service_keep_types() {
    let fixture = handwritten_service()
        .resource("/in")
        .stateless(
            Put,
            "function (query, response, $r) { $r.respond({type: typeof query.n, list: query.list}); }",
        )
        .resource("/out")
        .stateless(
            Get,
            "async function (query, response, $r) { const g = $s.resource(['/in?n=', '&list=', '']);
            $r.respond(await $r.call(1, g, 3, [3, [1, 'x']])); }",
        )
        .start()
        .await;
    assert_eq!(fixture.json("/out").await, json!({"type": "number", "list": [1, "x"]}));
}

#[tokio::test]
async fn an_internal_error_has_the_same_status_as_for_a_client() {
    let fixture = handwritten_service()
        .resource("/throws")
        .stateless(Get, "function () { throw new Error('oops'); }")
        .resource("/a")
        .stateless(Get, &calling_handler("['/throws']", 0))
        .resource("/b")
        .stateless(Get, &calling_handler("['/nothing']", 0))
        .resource("/c")
        .stateless(Get, &calling_handler("['/throws']", 3))
        .start()
        .await;
    assert_eq!(fixture.json("/a").await["status"], 500);
    assert_eq!(fixture.json("/b").await["status"], 404);
    assert_eq!(fixture.json("/c").await["status"], 405);
}

#[tokio::test]
async fn rule_7_a_run_that_would_wait_for_itself_fails_at_once() {
    let fixture = handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 1"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, &calling_handler("['/n']", 3))
        .resource("/m")
        .writer(Put, 0, "async function (query, response, $r) { $r.cells.n = 5; $r.respond(await $r.call(1, $s.resource(['/n']), 0, [])); }")
        .start()
        .await;
    let (status, text) = fixture.request("PUT", "/n").await;
    assert_eq!(status, 200);
    assert!(text.contains("508") && text.contains("test.sjs:"), "{text}");
    assert_eq!(
        fixture.request("PUT", "/m").await,
        (200, "1".into()),
        "as a reader it sees the committed value"
    );
}

#[tokio::test]
async fn the_number_of_calls_of_a_handler_is_limited() {
    let mut wish = default_settings();
    wish.options.limits.calls = 3;
    let many = "async function (query, response, $r) { for (let i = 0; i < query.n; i++) await $r.call(1, $s.resource(['/b']), 0, []); $r.respond('ok'); }";
    let fixture = handwritten_service()
        .resource("/a")
        .stateless(Get, many)
        .resource("/b")
        .stateless(Get, "function (q, p, $r) { $r.respond(1); }")
        .start_with(wish)
        .await;
    assert_eq!(fixture.get("/a?n=3").await, "ok");
    assert_eq!(fixture.request("GET", "/a?n=4").await, (500, "script-calls".into()));
}

#[tokio::test]
async fn a_redirect_to_a_very_long_path_is_not_followed() {
    let go = "function (query, response, $r) { $r.answer(302, {Location: '/' + 'é'.repeat(query.length)}); }";
    let follow = "async function (query, response, $r) { const g = $s.resource(['/go?length=', '']);
        try { await $r.call(3, g, 0, [query.length]); } catch (error) { $r.respond(error.status); } }";
    let fixture = handwritten_service()
        .resource("/go")
        .stateless(Get, go)
        .resource("/follow")
        .stateless(Get, follow)
        .start()
        .await;
    // Each letter is encoded by six characters.
    for (length, status) in [(10_000, "404"), (11_000, "302")] {
        assert_eq!(fixture.get(&format!("/follow?length={length}")).await, status);
    }
}
