//! The activation of a changed script.

use script::HandlerMethod::{Get, Put};
use testkit::{misbehaving_upstream, with_timeout};

use super::fixture::{HandwrittenService, default_settings, handwritten_service};

fn service_version(text: &str) -> HandwrittenService {
    handwritten_service()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, &format!("function (query, response, $r) {{ $r.respond('{text} ' + $r.cells.n); }}"))
        .writer(Put, 0, "function (query, response, $r) { $r.cells.n++; }")
}

#[tokio::test]
async fn a_changed_script_keeps_the_state() {
    let mut fixture = service_version("old").start().await;
    fixture.request("PUT", "/n").await;
    assert_eq!(fixture.get("/n").await, "old 1");
    fixture.replace(service_version("new"));
    fixture.expect_after_deployment("/n", "new 1").await;
    assert_eq!(fixture.request("PUT", "/n").await.0, 204);
    assert_eq!(fixture.get("/n").await, "new 2");
    assert_eq!(fixture.script.stats().restarts, 0, "the workers are the same");
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_leaves_the_old_one_active() {
    let mut fixture = service_version("old").start().await;
    assert_eq!(fixture.get("/n").await, "old 0");
    fixture.replace(service_version("new").head("throw new Error('no');"));
    fixture.wait_until_settled().await;
    assert_eq!(fixture.get("/n").await, "old 0");
}

#[tokio::test]
async fn a_run_keeps_the_script_that_it_began_with() {
    let upstream = misbehaving_upstream::start().await;
    let slow = |text: &str| {
        format!(
            "async function (query, response, $r) {{ await $r.call(1, $s.resource(['http://up/slow?ms=300']), 0, []); $r.respond('{text}'); }}"
        )
    };
    let mut wish = default_settings();
    wish.services.insert("up".into(), services::ServiceConfig::with_url(upstream.url()));
    let mut fixture =
        handwritten_service().resource("/slow").stateless(Get, &slow("old")).start_with(wish).await;
    let old = fixture.handle("/slow");
    upstream.wait_for_request("/slow").await;
    fixture.replace(
        handwritten_service()
            .resource("/slow")
            .stateless(Get, "function (query, response, $r) { $r.respond('new'); }"),
    );
    fixture.expect_after_deployment("/slow", "new").await;
    assert_eq!(with_timeout("the old run", old).await.expect("its end"), "old");
}
