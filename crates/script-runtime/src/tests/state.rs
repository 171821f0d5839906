//! State: its persistence, and its visibility to other runs.

use futures_util::future::join_all;
use http::Request;
use script::HandlerMethod::{Delete, Get, Post, Put};
use services::body;

use super::fixture::{HandwrittenService, ScriptFixture, default_settings, handwritten_service};

fn counter_service() -> HandwrittenService {
    handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { const $c = $r.cells; $r.respond($c.n); }")
        .writer(Put, 0, "function (query, response, $r) { const $c = $r.cells; $c.n++; $r.respond($c.n); }")
        .writer(Post, 0, "function (query, response, $r) { const $c = $r.cells; $c.n = 1000; throw new Error('no'); }")
        .writer(Delete, 0, "async function (query, response, $r) { const $c = $r.cells; $c.n = 7; $r.commit(); await $r.call(1, $s.resource(['/n']), 3, []); $r.respond('done'); }")
}

#[tokio::test]
async fn rule_5_writers_run_one_at_a_time_and_readers_see_committed_values() {
    let fixture = counter_service().start().await;
    assert_eq!(fixture.get("/n").await, "0");
    let puts = join_all((0..50).map(|_| fixture.request("PUT", "/n"))).await;
    let mut seen: Vec<u32> = puts.into_iter().map(|(_, text)| text.parse().expect("a number")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=50).collect::<Vec<_>>(), "each writer saw a different number");
    assert_eq!(fixture.get("/n").await, "50");
}

#[tokio::test]
async fn rule_5_the_writes_of_a_handler_that_throws_are_rolled_back() {
    let fixture = counter_service().start().await;
    assert_eq!(fixture.request("PUT", "/n").await, (200, "1".into()));
    assert_eq!(fixture.request("POST", "/n").await, (500, "script-threw".into()));
    assert_eq!(fixture.get("/n").await, "1");
    assert_eq!(fixture.request("PUT", "/n").await, (200, "2".into()));
}

#[tokio::test]
async fn rule_6_an_early_commit_unblocks_other_writers_including_its_own_calls() {
    let fixture = counter_service().start().await;
    assert_eq!(fixture.request("DELETE", "/n").await, (200, "done".into()));
    assert_eq!(fixture.get("/n").await, "8");
}

#[tokio::test]
async fn rule_6_a_call_after_a_commit_sees_the_committed_values() {
    let put = "async function (query, response, $r) { const n = ++$r.cells.n; $r.commit();
        $r.respond([n, await $r.call(1, $s.resource(['/n']), 0, [])]); }";
    let fixture = handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, "function (query, response, $r) { $r.respond($r.cells.n); }")
        .writer(Put, 0, put)
        .start()
        .await;
    for n in 1..20 {
        assert_eq!(fixture.request("PUT", "/n").await, (200, format!("[{n},{n}]")));
    }
}

#[tokio::test]
async fn state_survives_a_restart_of_the_gateway() {
    let fixture = counter_service().start().await;
    fixture.request("PUT", "/n").await;
    fixture.request("PUT", "/n").await;
    let folder = fixture.shut_down().await;
    let script_fixture = counter_service().start_in(folder, default_settings()).await;
    assert_eq!(script_fixture.get("/n").await, "2");
}

#[tokio::test]
async fn the_state_version_is_reported_if_enabled() {
    let mut wish = default_settings();
    wish.options.show_versions = true;
    let fixture = counter_service().start_with(wish).await;
    let version = async |method: &str| {
        let request = Request::builder().method(method).uri("/n").body(body::empty()).expect("a request");
        let response = fixture.send(request).await.expect("an answer");
        response.headers()["s-state-version"].to_str().expect("text").parse::<u64>().expect("a number")
    };
    let first = version("GET").await;
    assert_eq!(version("PUT").await, first + 1);
    assert_eq!(version("GET").await, first + 1);
}

fn nested_service() -> HandwrittenService {
    let post = "async function (query, response, $r) { const $c = $r.cells; const id = ++$c.id; $r.commit();
        await $r.declare(1, 1, '/total/' + id, {id});
        $r.answer(302, {Location: '/total/' + id}); }";
    handwritten_service()
        .resource("/search")
        .cell("id", true, Some("() => 0"))
        .writer(Post, 0, post)
        .nested_resource(0, "/search POST > /total/")
        .cell("s", false, Some("({id}) => id * 10"))
        .reader(
            Get,
            1,
            "function (query, response, $r, {id}) { const $c = $r.cells; $r.respond([id, $c.s]); }",
        )
        .writer(
            Put,
            1,
            "function (query, response, $r, {id}) { const $c = $r.cells; $c.s += Number(query.count); }",
        )
}

async fn start_nested() -> ScriptFixture {
    let fixture = nested_service().start().await;
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
    fixture
}

#[tokio::test]
async fn rule_9_a_nested_resource_has_captured_values_and_its_own_state() {
    let fixture = start_nested().await;
    assert_eq!(fixture.request("PUT", "/total/1?count=5").await.0, 204);
    assert_eq!(fixture.get("/total/1").await, "[1,15]");
    assert_eq!(fixture.get("/total/2").await, "[2,20]");
    let folder = fixture.shut_down().await;
    let script_fixture = nested_service().start_in(folder, default_settings()).await;
    assert_eq!(script_fixture.get("/total/1").await, "[1,15]", "it survives a restart");
}

#[tokio::test]
async fn rule_10_a_client_can_delete_a_nested_resource() {
    let fixture = start_nested().await;
    assert_eq!(fixture.request("DELETE", "/total/1").await, (204, String::new()));
    assert_eq!(fixture.request("GET", "/total/1").await, (404, "resource-not-found".into()));
    assert_eq!(fixture.request("DELETE", "/total/1").await.0, 404);
    assert_eq!(fixture.get("/total/2").await, "[2,20]");
    assert_eq!(fixture.request("DELETE", "/search").await.0, 405, "a static resource can't be deleted");
}

#[tokio::test]
async fn rule_10_the_number_of_created_resources_is_limited() {
    let mut wish = default_settings();
    wish.options.resources.max = 2;
    let fixture = nested_service().start_with(wish).await;
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
    assert_eq!(fixture.request("POST", "/search").await, (503, "state-resources-full".into()));
    assert_eq!(fixture.get("/total/2").await, "[2,20]", "existing ones remain");
}

#[tokio::test]
async fn rule_10_a_taken_path_is_an_error_that_a_handler_may_catch() {
    let declares = "async function (query, response, $r) { await $r.declare(2, 1, '/made', {}); }";
    let tries = "async function (query, response, $r) {
        try { await $r.declare(3, 2, '/made', {}); } catch (error) { $r.respond([error.name, error.status, error.message]); } }";
    let insists = "async function (query, response, $r) { await $r.declare(4, 2, '/made', {}); }";
    let get = "function (query, response, $r) { $r.respond('made'); }";
    let fixture = handwritten_service()
        .resource("/first")
        .stateless(Post, declares)
        .nested_resource(0, "/first > /made")
        .stateless(Get, get)
        .nested_resource(0, "/other > /made")
        .stateless(Get, get)
        .resource("/other")
        .stateless(Put, tries)
        .stateless(Post, insists)
        .start()
        .await;
    assert_eq!(fixture.request("POST", "/first").await.0, 204);
    assert_eq!(fixture.request("POST", "/other").await, (500, "state-path-taken".into()));
    let (status, caught) = fixture.request("PUT", "/other").await;
    assert_eq!(status, 200);
    assert!(
        caught.starts_with("[\"DeclarationError\",500,\"the path `/made` is already taken by "),
        "{caught}"
    );
    assert!(caught.ends_with("(state-path-taken)\"]"), "{caught}");
    assert_eq!(fixture.request("POST", "/first").await.0, 204, "the same declaration may be repeated");
}

#[tokio::test]
async fn a_changed_limit_applies_at_once_and_keeps_existing_resources() {
    let mut fixture = nested_service().start().await;
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
    let with = |most: u64| {
        let mut wish = default_settings();
        wish.options.resources.max = most;
        wish.options
    };
    fixture.replace_with(nested_service(), with(1));
    fixture.wait_until_settled().await;
    assert_eq!(fixture.request("POST", "/search").await, (503, "state-resources-full".into()));
    assert_eq!(fixture.get("/total/1").await, "[1,10]");
    fixture.replace_with(nested_service(), with(2));
    fixture.wait_until_settled().await;
    assert_eq!(fixture.request("POST", "/search").await.0, 302);
}

/// A script whose resources are created, used and removed concurrently.
const REMOVAL_SCRIPT: &str = "service test {
  state count = 0
  res '/lists' on POST {
    var name = query.name
    res '/lists/' + name {
      state items = ['first']
      on GET { respond items.length + name.length }
      on PUT { items.push(query.item); respond items.length }
      on PATCH { items.push(name.length); count++; respond count + items.length }
    }
    respond { 201: { Location: '/lists/' + name } }
  }
}";

#[tokio::test]
async fn rule_10_a_client_cannot_cause_a_resource_at_an_unreachable_path() {
    let fixture = ScriptFixture::from_source(REMOVAL_SCRIPT, default_settings()).await;
    for name in ["..", "a%3Fb", "a%23b", "a%5Cb", "x".repeat(5000).as_str()] {
        let made = fixture.request("POST", &format!("/lists?name={name}")).await;
        assert_eq!(made, (500, "state-declaration-invalid".into()), "{name}");
    }
    assert_eq!(fixture.request("POST", "/lists?name=a%20b").await.0, 201);
    assert_eq!(fixture.get("/lists/a%20b").await, "4");
}

/// A script whose clients choose paths next to those of its literal resources.
const CLIENT_PATH_SCRIPT: &str = "service test {
  res '/lists/total' {
    state total = 0
    on GET { respond total }
    on PUT { total++; respond total }
  }
  res '/lists/über' on GET { respond 'literal' }
  res '/lists' on POST {
    var name = query.name
    res '/lists/' + name on GET { respond name }
    respond { 201: { Location: '/lists/' + name } }
  }
}";

#[tokio::test]
async fn rule_10_a_client_cannot_take_the_path_or_the_state_of_a_literal_resource() {
    let fixture = ScriptFixture::from_source(CLIENT_PATH_SCRIPT, default_settings()).await;
    assert_eq!(fixture.request("PUT", "/lists/total").await, (200, "1".into()));
    assert_eq!(fixture.request("POST", "/lists?name=total").await, (500, "state-path-taken".into()));
    assert_eq!(fixture.request("PUT", "/lists/total").await, (200, "2".into()));
    assert_eq!(fixture.request("POST", "/lists?name=other").await.0, 201);
    assert_eq!(fixture.get("/lists/other").await, "other");
    // The encoded form of a literal path leads to its resource.
    assert_eq!(fixture.request("POST", "/lists?name=%25C3%25BCber").await.0, 201);
    assert_eq!(fixture.get("/lists/%C3%BCber").await, "literal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_a_resource_in_use_causes_no_errors_but_404() {
    for script in [REMOVAL_SCRIPT.to_owned(), REMOVAL_SCRIPT.replace("count++; respond count +", "respond")] {
        remove_while_used(&ScriptFixture::from_source(&script, default_settings()).await).await;
    }
}

async fn remove_while_used(fixture: &ScriptFixture) {
    for round in 0..40 {
        let (made, _) = fixture.request("POST", &format!("/lists?name=n{round}")).await;
        assert_eq!(made, 201);
        let path = format!("/lists/n{round}");
        let uses = (0..24).map(|number| {
            let method = ["GET", "PUT", "PATCH", "DELETE", "GET", "PUT"][(number + round) % 6];
            let path = if method == "PUT" { format!("{path}?item=1") } else { path.clone() };
            async move { (method, fixture.request(method, &path).await) }
        });
        for (method, (status, text)) in join_all(uses).await {
            assert!(matches!(status, 200 | 204 | 404), "{method}: {status} {text}");
        }
        assert_eq!(fixture.request("GET", &path).await.0, 404, "it is removed");
    }
}
