//! The activation of a changed script.

use script::HandlerMethod::{Get, Put};
use testkit::{misbehaving_upstream, with_timeout};

use super::rig::{HandwrittenService, wish, written};

fn version(text: &str) -> HandwrittenService {
    written()
        .resource("/n")
        .cell("n", true, Some("() => 0"))
        .reader(Get, 0, &format!("function (query, response, $r) {{ $r.respond('{text} ' + $r.cells.n); }}"))
        .writer(Put, 0, "function (query, response, $r) { $r.cells.n++; }")
}

#[tokio::test]
async fn a_changed_script_keeps_the_state() {
    let mut rig = version("old").start().await;
    rig.ask("PUT", "/n").await;
    assert_eq!(rig.get("/n").await, "old 1");
    rig.replace(version("new"));
    rig.until("/n", "new 1").await;
    assert_eq!(rig.ask("PUT", "/n").await.0, 204);
    assert_eq!(rig.get("/n").await, "new 2");
    assert_eq!(rig.script.stats().restarts, 0, "the workers are the same");
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_leaves_the_old_one_active() {
    let mut rig = version("old").start().await;
    assert_eq!(rig.get("/n").await, "old 0");
    rig.replace(version("new").head("throw new Error('no');"));
    rig.settled().await;
    assert_eq!(rig.get("/n").await, "old 0");
}

#[tokio::test]
async fn a_run_keeps_the_script_that_it_began_with() {
    let upstream = misbehaving_upstream::start().await;
    let slow = |text: &str| {
        format!(
            "async function (query, response, $r) {{ await $r.call(1, $s.resource(['http://up/slow?ms=300']), 0, []); $r.respond('{text}'); }}"
        )
    };
    let mut wish = wish();
    wish.services.insert("up".into(), services::ServiceConfig::with_url(upstream.url()));
    let mut rig = written().resource("/slow").on(Get, &slow("old")).start_as(wish).await;
    let old = rig.handle("/slow");
    upstream.wait_for_request("/slow").await;
    rig.replace(written().resource("/slow").on(Get, "function (query, response, $r) { $r.respond('new'); }"));
    rig.until("/slow", "new").await;
    assert_eq!(with_timeout("the old run", old).await.expect("its end"), "old");
}
