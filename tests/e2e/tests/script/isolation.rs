//! Misbehaving handlers: each is contained and does not disturb other handlers.

use super::ScriptTestGateway;

const BAD_SCRIPT: &str = r"service bad {
  state n = 0
  res '/ok' on GET { respond 'ok' }
  res '/throws' on GET {
    var nothing = null
    respond nothing.name
  }
  res '/loops' on GET { for (;;) ; }
  res '/waits' on GET { res never = 'http://up/hang'; respond never.get() }
  res '/cycle' on GET { var a = {}; a.a = a; respond a }
  res '/n' on POST { n++; respond n }
  res '/itself' on POST { n++; res again = '/itself'; again.post(); n++ }
  res '/many' on POST {
    for (var i = 0; i < 1000000; i++) {
      res '/one/' + i on GET { respond i }
    }
  }
  res '/twice' on GET {
    for (var word of ['first', 'second'])
      respond word
  }
  res '/for-ever' on GET { res again = '/for-ever'; respond again.get() }
}
";

async fn start_bad_script() -> ScriptTestGateway {
    start_with_timeout("30s").await
}

/// Like `bad`, with this time limit for each run.
async fn start_with_timeout(wall: &str) -> ScriptTestGateway {
    let options = format!("limits: {{ cpu: 300ms, timeout: {wall}, calls: 100 }}, resources: {{ max: 50 }}");
    ScriptTestGateway::start_with_options(BAD_SCRIPT, &options, "scripts: { internal_calls: 200 }").await
}

#[tokio::test]
async fn errors_are_masked_and_logged_with_their_location() {
    let gateway = start_bad_script().await;
    assert_eq!(gateway.problem_code("GET", "/throws").await, (500, "script-threw".into()));
    let line = gateway.gateway.wait_for_log(|line| line.contains("script-threw")).await.expect("a line");
    assert!(line.contains("shop.sjs:6:") && line.contains("Cannot read properties of null"), "{line}");
    assert!(
        !gateway.request("GET", "/throws").await.text().contains("null"),
        "the details must not reach clients"
    );
    assert_eq!(gateway.get("/ok").await, "ok");
}

#[tokio::test]
async fn rule_13_a_second_answer_is_logged_with_its_location() {
    let gateway = start_bad_script().await;
    assert_eq!(gateway.get("/twice").await, "first");
    let line =
        gateway.gateway.wait_for_log(|line| line.contains("a second `respond`")).await.expect("a line");
    assert!(line.contains("shop.sjs:20:7"), "{line}");
}

#[tokio::test]
async fn a_routes_deadline_limits_its_script() {
    let route = "  - { path: '/s/*', script: { file: shop.sjs, limits: { timeout: 30s } }, limits: { timeout: 3s } }\n";
    let gateway = ScriptTestGateway::start_with_routes(BAD_SCRIPT, route, "").await;
    let (waited, _) =
        tokio::join!(gateway.problem_code("GET", "/waits"), gateway.upstream.wait_for_request("/hang"));
    assert_eq!(waited, (504, "script-deadline".into()));
}

#[tokio::test]
async fn a_spinning_handler_is_stopped_and_others_answer() {
    let gateway = start_bad_script().await;
    assert_eq!(gateway.get("/ok").await, "ok");
    let (looped, neighbour) = tokio::join!(gateway.problem_code("GET", "/loops"), gateway.get("/ok"));
    assert_eq!((looped, &*neighbour), ((500, "script-time".into()), "ok"));
    let line = gateway.gateway.wait_for_log(|line| line.contains("script-time")).await.expect("a line");
    assert!(line.contains("shop.sjs:8:"), "{line}");
}

#[tokio::test]
async fn a_handler_that_waits_forever_times_out() {
    let gateway = start_with_timeout("3s").await;
    let (waited, _) =
        tokio::join!(gateway.problem_code("GET", "/waits"), gateway.upstream.wait_for_request("/hang"));
    assert_eq!(waited, (504, "script-wall".into()));
}

#[tokio::test]
async fn unsendable_answers_and_self_calls_have_their_own_errors() {
    let gateway = start_bad_script().await;
    assert_eq!(gateway.problem_code("GET", "/cycle").await, (500, "script-answer".into()));
    assert_eq!(gateway.request("POST", "/itself").await.status, 508);
    assert_eq!(gateway.request("POST", "/n").await.text(), "1", "rule 7: its writes are rolled back");
    let (status, code) = gateway.problem_code("GET", "/for-ever").await;
    assert!((500..=599).contains(&status), "{status} {code}");
    assert_eq!(gateway.get("/ok").await, "ok");
}

#[tokio::test]
async fn dynamic_resources_are_limited() {
    let gateway = start_bad_script().await;
    assert_eq!(gateway.problem_code("POST", "/many").await, (503, "state-resources-full".into()));
    let line = gateway.gateway.wait_for_log(|line| line.contains("can't be declared")).await.expect("a line");
    assert!(line.contains("shop.sjs:15:"), "{line}");
    assert!(line.contains("has 50 dynamic resources, which is the maximum"), "{line}");
    assert_eq!(gateway.get("/one/49").await, "49", "rule 10: each declaration is a commit of its own");
    assert_eq!(gateway.request("GET", "/one/50").await.status, 404);
    assert_eq!(gateway.get("/ok").await, "ok");
}
