//! A changed script comes into force beside the old one.

use script::Method::{Get, Put};

use super::rig::{Written, written};

fn version(text: &str) -> Written {
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
    assert_eq!(rig.script.stats().restarts, 0, "by the same workers");
}

#[tokio::test]
async fn a_script_that_can_not_be_loaded_leaves_the_old_one_in_force() {
    let mut rig = version("old").start().await;
    assert_eq!(rig.get("/n").await, "old 0");
    rig.replace(version("new").head("throw new Error('no');"));
    rig.settled().await;
    assert_eq!(rig.get("/n").await, "old 0");
}
