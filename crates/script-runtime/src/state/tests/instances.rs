//! Dynamic resources: rules 9 to 11.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use serde_json::json;

use super::{
    StateFixture, StateSettings, plan_cell, read_ticket, set_value, state_request, test_plan, write_ticket,
};
use crate::state::groups::instances::{MAX_CAPTURES, MAX_PATH, encode_record};
use crate::state::{
    CellScope, DeclarationResult, DynamicInstance, HeldLocks, PrecedingFrame, ResourceDeclaration,
    StateError, StatePlan, StateView,
};

/// A nested resource with an initialised cell and a cell of its handler; and a cell of the service.
pub(super) fn nested_plan() -> StatePlan {
    let cells = vec![
        plan_cell("/data POST > /made list", CellScope::Resource(1), true),
        plan_cell("/data POST > /made PUT n", CellScope::Handler(1), false),
        plan_cell("shared", CellScope::Service, false),
    ];
    test_plan(cells, &[(1, &[0]), (1, &[1]), (0, &[2])])
}

async fn declare_instance(
    edition: &StateView,
    path: &str,
    captures: &str,
) -> Result<DeclarationResult, StateError> {
    let (captures, initials) = (captures.to_owned().into(), r#"{"list":[1]}"#.into());
    edition.declare(ResourceDeclaration { resource: 1, path, captures, initials, after_commit: None }).await
}

pub(super) async fn declare_new(fixture: &StateFixture, path: &str) {
    expect_new(declare_instance(&fixture.edition(), path, "1").await);
}

fn expect_new(result: Result<DeclarationResult, StateError>) -> DynamicInstance {
    match result {
        Ok(DeclarationResult::New(instance)) => instance,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rule_9_captures_and_initial_values_survive_a_restart() {
    let fixture = StateFixture::new(nested_plan()).await;
    let instance = expect_new(declare_instance(&fixture.edition(), "/made/1", r#"{"total":3}"#).await);
    let frames = instance.collect_frames(1);
    assert!(
        matches!(&frames[..], [PrecedingFrame::Instance { captures, .. }] if &captures[..] == br#"{"total":3}"#)
    );
    assert!(instance.collect_frames(1).is_empty(), "captures are sent once to a worker");
    fixture.set_value(1, "/made/1", "5").await;
    drop(instance);
    let state_fixture = fixture.restart(nested_plan()).await;
    let instance = state_fixture.edition().find_instance("/made/1").await.unwrap().unwrap();
    assert_eq!((&instance.captures()[..], instance.resource()), (&br#"{"total":3}"#[..], 1));
    assert_eq!(state_fixture.read_values(0, "/made/1").await, [Some(json!([1]))]);
    assert_eq!(state_fixture.read_values(1, "/made/1").await, [Some(json!(5))]);
}

#[tokio::test]
async fn rule_10_redeclaring_keeps_the_instance_and_another_declaration_cannot_take_its_path() {
    let mut two = nested_plan();
    two.resources.push(crate::state::PlanResource {
        key: "/other > /made".into(),
        path: None,
        is_dynamic: true,
        cells: Vec::new(),
    });
    let fixture = StateFixture::new(two).await;
    let first = expect_new(declare_instance(&fixture.edition(), "/made/1", "1").await);
    fixture.set_value(0, "/made/1", "[1,2]").await;
    match declare_instance(&fixture.edition(), "/made/1", "2").await {
        Ok(DeclarationResult::Existing(again)) => {
            assert_eq!((again.id(), &again.captures()[..]), (first.id(), &b"1"[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.read_values(0, "/made/1").await, [Some(json!([1, 2]))]);
    let (captures, initials) = ("{}".into(), "".into());
    let other = ResourceDeclaration { resource: 2, path: "/made/1", captures, initials, after_commit: None };
    let error = fixture.edition().declare(other).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("state-path-taken", 500));
    let text =
        "the path `/made/1` is already taken by `/data POST > /made`; `/other > /made` can't have it too";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn rule_10_a_computed_path_cannot_be_a_literal_one() {
    let mut plan = nested_plan();
    plan.resources.push(crate::state::PlanResource {
        key: "/data POST > /literal".into(),
        path: Some("/literal".into()),
        is_dynamic: true,
        cells: Vec::new(),
    });
    let fixture = StateFixture::new(plan).await;
    let edition = fixture.edition();
    for (path, owner) in [("/data", "/data"), ("/literal", "/data POST > /literal")] {
        let error = declare_instance(&edition, path, "1").await.unwrap_err();
        let text = format!(
            "the path `{path}` is already taken by `{owner}`; `/data POST > /made` can't have it too"
        );
        assert_eq!((error.code(), error.to_string()), ("state-path-taken", text));
    }
    let (captures, initials) = ("1".into(), "".into());
    let literal =
        ResourceDeclaration { resource: 2, path: "/literal", captures, initials, after_commit: None };
    expect_new(edition.declare(literal).await);
}

#[tokio::test]
async fn state_of_a_literal_resource_is_not_removed_with_an_instance_at_its_path() {
    let mut plan = nested_plan();
    plan.cells.push(plan_cell("/data n", CellScope::Resource(0), false));
    plan.groups.push(vec![3]);
    plan.handlers.push(crate::state::PlanHandler { resource: 0, group: Some(3), cells: vec![3] });
    let fixture = StateFixture::new(plan.clone()).await;
    let edition = fixture.edition();
    fixture.set_value(3, "/made/1", "7").await;
    // As if an earlier program had declared it.
    expect_new(declare_instance(&edition, "/made/1", "1").await);
    fixture.set_value(1, "/made/1", "5").await;
    let running = write_ticket(&edition, 3, "/made/1").await.unwrap();
    assert!(edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
    assert_eq!(fixture.read_values(3, "/made/1").await, [Some(json!(7))]);
    running.commit(1, b"[[0,[],8]]").unwrap().wait().await.unwrap();
    expect_new(declare_instance(&edition, "/made/1", "1").await);
    let removing = write_ticket(&edition, 1, "/made/1").await.unwrap();
    assert_eq!(fixture.read_values(1, "/made/1").await, [None], "its own state is removed");
    removing.commit_and_remove(1, b"", "/made/1").unwrap().wait().await.unwrap();
    drop(edition);
    let state_fixture = fixture.restart(plan).await;
    assert_eq!(state_fixture.read_values(3, "/made/1").await, [Some(json!(8))]);
}

#[tokio::test]
async fn a_declaration_and_a_removal_that_have_begun_are_completed_without_their_caller() {
    let fixture = StateFixture::new(nested_plan()).await;
    let (edition, none) = (fixture.edition(), HeldLocks::empty());
    let has = |is_there: bool| {
        let instances = &edition.service_groups.instances;
        async move {
            while instances.find("/made/1").is_some() != is_there {
                tokio::task::yield_now().await;
            }
        }
    };
    // The first poll begins them.
    assert!(declare_instance(&edition, "/made/1", "1").boxed().now_or_never().is_none());
    testkit::with_timeout("the instance", has(true)).await;
    assert_eq!(fixture.read_values(0, "/made/1").await, [Some(json!([1]))]);
    assert!(edition.remove_instance("/made/1", &none, "a test").boxed().now_or_never().is_none());
    testkit::with_timeout("the removal of the instance", has(false)).await;
    expect_new(declare_instance(&edition, "/made/1", "2").await);
}

#[tokio::test]
async fn rule_10_concurrent_declarations_yield_the_same_instance() {
    let fixture = StateFixture::new(nested_plan()).await;
    let edition = fixture.edition();
    // Either declaration may be processed first.
    for number in 0..20 {
        let path = format!("/made/{number}");
        let (result, other) =
            tokio::join!(declare_instance(&edition, &path, "1"), declare_instance(&edition, &path, "2"));
        let mut new = 0;
        let ids = [result.unwrap(), other.unwrap()].map(|declaration_result| match declaration_result {
            DeclarationResult::New(instance) => {
                new += 1;
                instance.id()
            }
            DeclarationResult::Existing(instance) => instance.id(),
        });
        assert_eq!((new, ids[0]), (1, ids[1]));
        assert_eq!(edition.find_instance(&path).await.unwrap().unwrap().id(), ids[0]);
    }
}

#[tokio::test]
async fn rule_10_removal_deletes_the_state_and_allows_a_new_declaration() {
    let fixture = StateFixture::new(nested_plan()).await;
    let edition = fixture.edition();
    let instance = expect_new(declare_instance(&edition, "/made/1", "1").await);
    assert_eq!(instance.collect_frames(1).len(), 1);
    fixture.set_value(0, "/made/1", "[1,2]").await;
    fixture.set_value(1, "/made/1", "5").await;
    let running = write_ticket(&edition, 1, "/made/1").await.unwrap();
    assert!(edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
    assert!(!edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
    assert!(edition.find_instance("/made/1").await.unwrap().is_none());
    let error = running.commit(1, b"[[0,[],6]]").unwrap_err();
    assert_eq!((error.code(), error.status()), ("state-resource-gone", 404));
    assert_eq!(read_ticket(&edition, 0, "/made/1").await.unwrap_err().code(), "state-resource-gone");
    assert_eq!(
        fixture.states.0.store.keys("Shop/").await.unwrap().len(),
        1,
        "only the minimum version remains"
    );
    let dynamic_instance = expect_new(declare_instance(&edition, "/made/1", "2").await);
    assert_ne!(dynamic_instance.id(), instance.id());
    assert_eq!(fixture.read_values(0, "/made/1").await, [Some(json!([1]))]);
    assert_eq!(fixture.read_values(1, "/made/1").await, [None]);
}

#[tokio::test]
async fn rule_10_response_remove_takes_effect_with_the_commit() {
    let fixture = StateFixture::new(nested_plan()).await;
    let edition = fixture.edition();
    expect_new(declare_instance(&edition, "/made/1", "1").await);
    drop(write_ticket(&edition, 1, "/made/1").await.unwrap());
    assert!(edition.find_instance("/made/1").await.unwrap().is_some(), "a run that throws removes nothing");
    let ticket = write_ticket(&edition, 1, "/made/1").await.unwrap();
    let waiting = tokio::spawn({
        let edition = edition.clone();
        async move { write_ticket(&edition, 1, "/made/1").await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    let durable = ticket.commit_and_remove(1, b"[[0,[],1]]", "/made/1").unwrap();
    assert!(
        edition.find_instance("/made/1").await.unwrap().is_some(),
        "it exists until the removal is durable"
    );
    durable.wait().await.unwrap();
    assert!(edition.find_instance("/made/1").await.unwrap().is_none());
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "state-resource-gone");
    let state_fixture = {
        drop(edition);
        fixture.restart(nested_plan()).await
    };
    assert!(state_fixture.edition().find_instance("/made/1").await.unwrap().is_none());
}

#[tokio::test]
async fn rule_10_the_number_of_instances_is_limited_and_a_removal_makes_room() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let settings = StateSettings { instances: 2, ..StateSettings::default() };
    let fixture = StateFixture::with_settings(folder, nested_plan(), settings).await;
    let edition = fixture.edition();
    expect_new(declare_instance(&edition, "/made/1", "1").await);
    expect_new(declare_instance(&edition, "/made/2", "1").await);
    let full = declare_instance(&edition, "/made/3", "1").await.unwrap_err();
    assert_eq!((full.code(), full.status()), ("state-resources-full", 503));
    assert_eq!(full.to_string(), "`Shop` has 2 dynamic resources, which is the maximum");
    assert!(matches!(declare_instance(&edition, "/made/2", "1").await, Ok(DeclarationResult::Existing(_))));
    edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap();
    expect_new(declare_instance(&edition, "/made/3", "1").await);
}

#[tokio::test]
async fn rule_10_an_expired_instance_is_removed_even_after_a_restart() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let settings = StateSettings { ttl: Some(Duration::from_secs(60)), ..StateSettings::default() };
    let fixture = StateFixture::with_settings(folder, nested_plan(), settings).await;
    expect_new(declare_instance(&fixture.edition(), "/made/1", "1").await);
    let state_fixture = fixture.restart(nested_plan()).await;
    state_fixture.states.tick(SystemTime::now() + Duration::from_secs(50)).await;
    assert!(state_fixture.edition().find_instance("/made/1").await.unwrap().is_some());
    state_fixture.states.tick(SystemTime::now() + Duration::from_secs(70)).await;
    assert!(state_fixture.edition().find_instance("/made/1").await.unwrap().is_none());
}

#[tokio::test]
async fn rule_10_invalid_declarations_are_refused() {
    let fixture = StateFixture::new(nested_plan()).await;
    for (path, captures) in [("made", "1"), ("/a\nb", "1"), ("/made", "{"), ("/made", "")] {
        let refused = declare_instance(&fixture.edition(), path, captures).await.unwrap_err();
        assert_eq!(refused.code(), "state-declaration-invalid", "{path} {captures}");
    }
}

#[tokio::test]
async fn rule_10_declaring_a_path_that_no_request_can_have_is_refused() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let fixture = StateFixture::with_settings(
        folder,
        nested_plan(),
        StateSettings { instances: 1, ..StateSettings::default() },
    )
    .await;
    let edition = fixture.edition();
    let long = |length: usize| format!("/{}", "x".repeat(length - 1));
    let (longest, too_long) = (long(MAX_PATH), long(MAX_PATH + 1));
    let refused = [
        ("/made?a=1", "`?` and `#` end a path"),
        ("/made#there", "`?` and `#` end a path"),
        ("/made/..", "`.` or `..` segment"),
        ("/./made", "`.` or `..` segment"),
        ("/made/%2e%2E/x", "`.` or `..` segment"),
        ("/made/..;v=1", "`.` or `..` segment"),
        ("/a%2F..", "`.` or `..` segment"),
        ("/a\\b", "with a backslash"),
        ("/a\u{7f}", "control characters"),
        (too_long.as_str(), "its path has 4097 bytes, more than the maximum of 4096"),
    ];
    for (path, reason) in refused {
        let error = declare_instance(&edition, path, "1").await.unwrap_err();
        assert_eq!((error.code(), error.status()), ("state-declaration-invalid", 500), "{path}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().len() < 400, "{error}");
    }
    // The refused declarations have not used up the single slot.
    for path in ["/made/a b", "/made/é", "/made/50%", "/made/%3F", "/made/...", "/made//1/", longest.as_str()]
    {
        expect_new(declare_instance(&edition, path, "1").await);
        assert!(edition.remove_instance(path, &HeldLocks::empty(), "a test").await.unwrap());
    }
}

#[tokio::test]
async fn rule_9_the_size_of_captures_is_limited() {
    let fixture = StateFixture::new(nested_plan()).await;
    let edition = fixture.edition();
    let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    expect_new(declare_instance(&edition, "/made/1", &text(MAX_CAPTURES)).await);
    let error = declare_instance(&edition, "/made/2", &text(MAX_CAPTURES + 1)).await.unwrap_err();
    let reason = "`/made/2` can't be declared: it captures 262145 bytes, more than the maximum of 262144";
    assert_eq!((error.code(), &*error.to_string()), ("state-declaration-invalid", reason));
    assert!(edition.find_instance("/made/2").await.unwrap().is_none());
}

#[tokio::test]
async fn captures_are_in_memory_once_without_spare_capacity() {
    let captures = format!("\"{}\"", "x".repeat(100_000));
    let record = encode_record("/data POST > /made", Some(7), captures.as_bytes()).unwrap();
    let record = record.try_into_mut().unwrap();
    assert_eq!(record.capacity(), record.len());
    let fixture = StateFixture::new(nested_plan()).await;
    let instance = expect_new(declare_instance(&fixture.edition(), "/made/1", &captures).await);
    let place = instance.captures().as_ptr();
    let dynamic_instance = fixture.edition().find_instance("/made/1").await.unwrap().unwrap();
    assert_eq!(dynamic_instance.captures().as_ptr(), place);
    let frames = dynamic_instance.collect_frames(1);
    assert!(matches!(&frames[..], [PrecedingFrame::Instance { captures, .. }] if captures.as_ptr() == place));
}

#[tokio::test]
async fn rule_11_a_declaration_follows_the_commit_of_its_run() {
    let fixture = StateFixture::new(nested_plan()).await;
    fixture.set_value(2, "/data", "1").await;
    let early = set_value(&fixture.edition(), 2, "/data", "2").await.unwrap();
    let edition = fixture.edition();
    let after_commit = Some(&early);
    let (captures, initials) = ("{}".into(), "".into());
    let declaration = ResourceDeclaration { resource: 1, path: "/made/2", captures, initials, after_commit };
    edition.declare(declaration.clone()).await.unwrap();
    assert_eq!(fixture.read_values(2, "/data").await, [Some(json!(2))], "the commit is durable by then");
    fixture.invalidate_lease("Shop/shared/shared").await;
    let commit = set_value(&edition, 2, "/data", "4").await.unwrap();
    let result = edition
        .declare(ResourceDeclaration { path: "/made/4", after_commit: Some(&commit), ..declaration })
        .await;
    assert!(result.is_err(), "the preceding commit failed");
    assert!(edition.find_instance("/made/4").await.unwrap().is_none());
}

#[tokio::test]
async fn instances_of_a_removed_declaration_are_dormant() {
    let fixture = StateFixture::new(nested_plan()).await;
    expect_new(declare_instance(&fixture.edition(), "/made/1", "1").await);
    fixture.set_value(0, "/made/1", "[7]").await;
    let mut without = nested_plan();
    without.resources[1].key = "/data PUT > /else".into();
    let edition = fixture.service.reload(without.clone());
    assert!(edition.find_instance("/made/1").await.unwrap().is_none());
    assert_eq!(declare_instance(&edition, "/made/1", "1").await.unwrap_err().code(), "state-path-taken");
    let state_fixture = {
        drop(edition);
        fixture.restart(without).await
    };
    assert!(state_fixture.edition().find_instance("/made/1").await.unwrap().is_none());
    let edition = state_fixture.service.reload(nested_plan());
    assert!(edition.find_instance("/made/1").await.unwrap().is_some());
    assert_eq!(state_fixture.read_values(0, "/made/1").await, [Some(json!([7]))]);
    assert!(edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
}

#[tokio::test]
async fn cells_grouped_with_those_of_the_service_are_removed_with_their_instance() {
    let cells = vec![
        plan_cell("shared", CellScope::Service, false),
        plan_cell("/data POST > /made s", CellScope::Resource(1), false),
    ];
    let plan = test_plan(cells, &[(1, &[0, 1])]);
    let fixture = StateFixture::new(plan.clone()).await;
    let edition = fixture.edition();
    for path in ["/made/1", "/made/2"] {
        edition
            .declare(ResourceDeclaration {
                resource: 1,
                path,
                captures: "{}".into(),
                initials: "".into(),
                after_commit: None,
            })
            .await
            .unwrap();
        let ticket = write_ticket(&edition, 0, path).await.unwrap();
        ticket.commit(1, format!("[[1,[],\"{path}\"],[0,[],1]]").as_bytes()).unwrap().wait().await.unwrap();
    }
    let before = read_ticket(&edition, 0, "/made/1").await.unwrap().version();
    let ticket =
        edition.write_ticket(state_request(0, "/made/1", &HeldLocks::empty(), "shop.sjs:1:1")).await.unwrap();
    ticket.commit_and_remove(1, b"[[0,[],2]]", "/made/1").unwrap().wait().await.unwrap();
    assert_eq!(read_ticket(&edition, 0, "/made/1").await.unwrap_err().code(), "state-resource-gone");
    assert_eq!(fixture.read_values(0, "/made/2").await, [Some(json!(2)), Some(json!("/made/2"))]);
    let state_fixture = {
        drop(edition);
        fixture.restart(plan).await
    };
    assert_eq!(state_fixture.read_values(0, "/made/2").await, [Some(json!(2)), Some(json!("/made/2"))]);
    let after = read_ticket(&state_fixture.edition(), 0, "/made/2").await.unwrap().version();
    assert!(after > before, "versions don't decrease when instances are removed: {before} {after}");
}
