//! Handlers that misbehave: each is contained, and its neighbours are undisturbed.

use super::Served;

const BAD: &str = r"service bad {
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

async fn bad() -> Served {
    within("30s").await
}

/// With so much time for each run.
async fn within(wall: &str) -> Served {
    let options = format!("limits: {{ time: 300ms, wall: {wall}, calls: 100 }}, resources: {{ most: 50 }}");
    Served::with(BAD, &options, "scripts: { internal_calls: 200 }").await
}

#[tokio::test]
async fn an_error_is_masked_and_the_log_has_its_place_in_the_script() {
    let served = bad().await;
    assert_eq!(served.refused("GET", "/throws").await, (500, "script-threw".into()));
    let line = served.gateway.logged(|line| line.contains("script-threw")).await.expect("a line");
    assert!(line.contains("shop.sjs:6:") && line.contains("Cannot read properties of null"), "{line}");
    assert!(!served.ask("GET", "/throws").await.text().contains("null"), "strangers see none of it");
    assert_eq!(served.get("/ok").await, "ok");
}

#[tokio::test]
async fn rule_13_the_log_says_where_a_second_answer_stands() {
    let served = bad().await;
    assert_eq!(served.get("/twice").await, "first");
    let line = served.gateway.logged(|line| line.contains("a second `respond`")).await.expect("a line");
    assert!(line.contains("shop.sjs:20:7"), "{line}");
}

#[tokio::test]
async fn a_route_s_deadline_bounds_its_script() {
    let route =
        "  - { path: '/s/*', script: { file: shop.sjs, limits: { wall: 30s } }, limits: { deadline: 3s } }\n";
    let served = Served::at(BAD, route, "").await;
    let (waited, _) = tokio::join!(served.refused("GET", "/waits"), served.upstream.seen("/hang"));
    assert_eq!(waited, (504, "script-deadline".into()));
}

#[tokio::test]
async fn a_handler_that_computes_for_ever_is_ended_and_its_neighbours_answer() {
    let served = bad().await;
    assert_eq!(served.get("/ok").await, "ok");
    let (looped, neighbour) = tokio::join!(served.refused("GET", "/loops"), served.get("/ok"));
    assert_eq!((looped, &*neighbour), ((500, "script-time".into()), "ok"));
    let line = served.gateway.logged(|line| line.contains("script-time")).await.expect("a line");
    assert!(line.contains("shop.sjs:8:"), "{line}");
}

#[tokio::test]
async fn a_handler_that_waits_for_ever_is_given_up() {
    let served = within("3s").await;
    let (waited, _) = tokio::join!(served.refused("GET", "/waits"), served.upstream.seen("/hang"));
    assert_eq!(waited, (504, "script-wall".into()));
}

#[tokio::test]
async fn what_can_t_be_sent_or_calls_itself_is_an_error_of_its_own() {
    let served = bad().await;
    assert_eq!(served.refused("GET", "/cycle").await, (500, "script-answer".into()));
    assert_eq!(served.ask("POST", "/itself").await.status, 508);
    assert_eq!(served.ask("POST", "/n").await.text(), "1", "rule 7: nothing of it was kept");
    let (status, code) = served.refused("GET", "/for-ever").await;
    assert!((500..=599).contains(&status), "{status} {code}");
    assert_eq!(served.get("/ok").await, "ok");
}

#[tokio::test]
async fn a_million_resources_are_as_many_as_may_be() {
    let served = bad().await;
    assert_eq!(served.refused("POST", "/many").await, (503, "state-resources-full".into()));
    let line = served.gateway.logged(|line| line.contains("can't be declared")).await.expect("a line");
    assert!(line.contains("shop.sjs:15:"), "{line}");
    assert!(line.contains("has 50 dynamic resources, and that is the most it may have"), "{line}");
    assert_eq!(served.get("/one/49").await, "49", "rule 10: each declaration is a commit of its own");
    assert_eq!(served.ask("GET", "/one/50").await.status, 404);
    assert_eq!(served.get("/ok").await, "ok");
}
