//! The limit of the size of a service's state.

use std::sync::Arc;

use serde_json::json;

use super::instances::{declare_new, nested_plan};
use super::{StateFixture, StateSettings, counter_plan, set_value, write_ticket};
use crate::state::groups::instances::MAX_CAPTURES;
use crate::state::sizes::entry_size;
use crate::state::{HeldLocks, ResourceDeclaration, StateError, StatePlan, StateView};

/// The key of [`counter`]'s cell.
const COUNTER_KEY: &str = "Shop/shared/n";

/// Starts a gateway with this maximum size of the service's state.
async fn with_size_limit(plan: StatePlan, size: u64) -> StateFixture {
    let settings = StateSettings { size, ..StateSettings::default() };
    StateFixture::with_settings(Arc::new(tempfile::tempdir().unwrap()), plan, settings).await
}

fn total_size(fixture: &StateFixture) -> u64 {
    fixture.edition().service_groups.sizes.total()
}

/// Applies an edit to a handler's first cell, durably.
async fn commit_edit(edition: &StateView, edit: &str) -> Result<(), StateError> {
    let ticket = write_ticket(edition, 0, "/data").await?;
    ticket.commit(0, format!("[{edit}]").as_bytes())?.wait().await
}

#[tokio::test]
async fn refuses_a_write_that_grows_the_state_beyond_its_limit() {
    let most = entry_size(COUNTER_KEY, "12345678".len());
    let fixture = with_size_limit(counter_plan(), most).await;
    fixture.set_value(0, "/data", "12345678").await;
    assert_eq!(total_size(&fixture), most);
    let refused = set_value(&fixture.edition(), 0, "/data", "123456789").await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-full", 503));
    let text = format!("the state of `Shop` would have {} bytes, more than the maximum of {most}", most + 1);
    assert_eq!(refused.to_string(), text);
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(12_345_678))]);
    // Writes that do not grow the state are accepted, and make room.
    fixture.set_value(0, "/data", "87654321").await;
    fixture.set_value(0, "/data", "1").await;
    fixture.set_value(0, "/data", "12345678").await;
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(12_345_678))]);
}

#[tokio::test]
async fn accepts_writes_that_shrink_a_state_above_its_limit() {
    let fixture = with_size_limit(counter_plan(), 1000).await;
    let edition = fixture.edition();
    fixture.set_value(0, "/data", r#"{"list":[1,22,333],"name":"a"}"#).await;
    fixture.service.set_settings(StateSettings { size: 10, ..StateSettings::default() });
    for larger in
        [r#"[0,["list",3],4]"#, r#"[0,["more"],0]"#, r#"[0,["name"],"ab"]"#, r#"[0,["list",0],0,[9]]"#]
    {
        assert_eq!(commit_edit(&edition, larger).await.unwrap_err().code(), "state-full", "{larger}");
    }
    for smaller in
        [r#"[0,["list",0],1,[]]"#, r#"[0,["list","length"],1]"#, r#"[0,["name"],"b"]"#, r#"[0,["name"]]"#]
    {
        commit_edit(&edition, smaller).await.unwrap();
    }
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!({ "list": [22] }))]);
    assert_eq!(total_size(&fixture), entry_size(COUNTER_KEY, r#"{"list":[22]}"#.len()));
    commit_edit(&edition, "[0,[]]").await.unwrap();
    assert_eq!(total_size(&fixture), entry_size(COUNTER_KEY, 0));
}

#[tokio::test]
async fn a_write_that_the_store_refuses_does_not_count() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    let before = total_size(&fixture);
    let ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    fixture.invalidate_lease(COUNTER_KEY).await;
    let durable = ticket.commit(0, b"[[0,[],123456]]").unwrap();
    assert!(total_size(&fixture) > before);
    assert_eq!(durable.wait().await.unwrap_err().code(), "state-lease-lost");
    assert_eq!(total_size(&fixture), before);
}

#[tokio::test]
async fn refuses_a_declaration_that_grows_the_state_beyond_its_limit() {
    // Enough for one resource with its initial value, but not for two.
    let fixture = with_size_limit(nested_plan(), 700).await;
    declare_new(&fixture, "/made/1").await;
    let edition = fixture.edition();
    let (captures, initials) = ("1".into(), r#"{"list":[1]}"#.into());
    let second = ResourceDeclaration { resource: 1, path: "/made/2", captures, initials, after_commit: None };
    assert_eq!(edition.declare(second).await.unwrap_err().code(), "state-full");
    assert!(edition.find_instance("/made/2").await.unwrap().is_none());
    edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap();
    assert_eq!(total_size(&fixture), 0);
    declare_new(&fixture, "/made/2").await;
}

#[tokio::test]
async fn refuses_a_resource_whose_captures_and_path_exceed_the_limit() {
    let most = 1 << 20;
    let fixture = with_size_limit(nested_plan(), most).await;
    let edition = fixture.edition();
    let captures = format!("\"{}\"", "x".repeat(MAX_CAPTURES - 2));
    let mut made = 0;
    let refused = loop {
        let path = format!("/made/{made}");
        let (captures, initials) = (captures.clone().into(), "".into());
        let declaration =
            ResourceDeclaration { resource: 1, path: &path, captures, initials, after_commit: None };
        match edition.declare(declaration).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((made, refused.code(), refused.status()), (3, "state-full", 503));
    assert!(total_size(&fixture) <= most);
    edition.remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap();
    declare_new(&fixture, "/made/1").await;
}

#[tokio::test]
async fn a_resource_counts_at_least_its_memory() {
    let fixture = with_size_limit(nested_plan(), 1 << 20).await;
    let path = format!("/made/{}", "x".repeat(1000));
    let (captures, initials) = ("1".into(), "".into());
    let declaration =
        ResourceDeclaration { resource: 1, path: &path, captures, initials, after_commit: None };
    fixture.edition().declare(declaration).await.unwrap();
    // The path, its copy in the key, the instance, and two map entries.
    assert!(total_size(&fixture) > 2 * path.len() as u64 + 256 + 64, "{}", total_size(&fixture));
}

#[tokio::test]
async fn a_restart_counts_the_state_before_it_is_loaded() {
    let fixture = StateFixture::new(nested_plan()).await;
    declare_new(&fixture, "/made/1").await;
    fixture.set_value(2, "/data", r#"{"name":"a"}"#).await;
    let before = total_size(&fixture);
    let state_fixture = fixture.restart(nested_plan()).await;
    assert_eq!(total_size(&state_fixture), before);
    assert_eq!(state_fixture.read_values(2, "/data").await, [Some(json!({ "name": "a" }))]);
    assert_eq!(total_size(&state_fixture), before);
}
