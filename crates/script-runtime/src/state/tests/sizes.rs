//! The limit of the size of a service's state.

use std::sync::Arc;

use serde_json::json;

use super::instances::{declare_on, nested};
use super::{StateFixture, StateSettings, counter, set, write};
use crate::state::instances::MAX_CAPTURES;
use crate::state::sizes::entry_size;
use crate::state::{HeldLocks, ResourceDeclaration, StateError, StatePlan, StateView};

/// The key of [`counter`]'s cell.
const KEY: &str = "Shop/shared/n";

/// Starts a gateway with this maximum size of the service's state.
async fn bounded(plan: StatePlan, size: u64) -> StateFixture {
    let settings = StateSettings { size, ..StateSettings::default() };
    StateFixture::on(Arc::new(tempfile::tempdir().unwrap()), plan, settings).await
}

fn total(ground: &StateFixture) -> u64 {
    ground.edition().home.sizes.total()
}

/// Applies an edit to a handler's first cell, durably.
async fn edit(edition: &StateView, edit: &str) -> Result<(), StateError> {
    let ticket = write(edition, 0, "/data").await?;
    ticket.commit(0, format!("[{edit}]").as_bytes())?.wait().await
}

#[tokio::test]
async fn refuses_a_write_that_grows_the_state_beyond_its_limit() {
    let most = entry_size(KEY, "12345678".len());
    let ground = bounded(counter(), most).await;
    ground.set(0, "/data", "12345678").await;
    assert_eq!(total(&ground), most);
    let refused = set(&ground.edition(), 0, "/data", "123456789").await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-full", 503));
    let text = format!("the state of `Shop` would have {} bytes, more than the maximum of {most}", most + 1);
    assert_eq!(refused.to_string(), text);
    assert_eq!(ground.value(0, "/data").await, [Some(json!(12_345_678))]);
    // Writes that do not grow the state are accepted, and make room.
    ground.set(0, "/data", "87654321").await;
    ground.set(0, "/data", "1").await;
    ground.set(0, "/data", "12345678").await;
    assert_eq!(ground.value(0, "/data").await, [Some(json!(12_345_678))]);
}

#[tokio::test]
async fn accepts_writes_that_shrink_a_state_above_its_limit() {
    let ground = bounded(counter(), 1000).await;
    let edition = ground.edition();
    ground.set(0, "/data", r#"{"list":[1,22,333],"name":"a"}"#).await;
    ground.service.set(StateSettings { size: 10, ..StateSettings::default() });
    for larger in
        [r#"[0,["list",3],4]"#, r#"[0,["more"],0]"#, r#"[0,["name"],"ab"]"#, r#"[0,["list",0],0,[9]]"#]
    {
        assert_eq!(edit(&edition, larger).await.unwrap_err().code(), "state-full", "{larger}");
    }
    for smaller in
        [r#"[0,["list",0],1,[]]"#, r#"[0,["list","length"],1]"#, r#"[0,["name"],"b"]"#, r#"[0,["name"]]"#]
    {
        edit(&edition, smaller).await.unwrap();
    }
    assert_eq!(ground.value(0, "/data").await, [Some(json!({ "list": [22] }))]);
    assert_eq!(total(&ground), entry_size(KEY, r#"{"list":[22]}"#.len()));
    edit(&edition, "[0,[]]").await.unwrap();
    assert_eq!(total(&ground), entry_size(KEY, 0));
}

#[tokio::test]
async fn a_write_that_the_store_refuses_does_not_count() {
    let ground = StateFixture::new(counter()).await;
    ground.set(0, "/data", "1").await;
    let before = total(&ground);
    let ticket = write(&ground.edition(), 0, "/data").await.unwrap();
    ground.steal(KEY).await;
    let durable = ticket.commit(0, b"[[0,[],123456]]").unwrap();
    assert!(total(&ground) > before);
    assert_eq!(durable.wait().await.unwrap_err().code(), "state-lease-lost");
    assert_eq!(total(&ground), before);
}

#[tokio::test]
async fn refuses_a_declaration_that_grows_the_state_beyond_its_limit() {
    // Enough for one resource with its initial value, but not for two.
    let ground = bounded(nested(), 700).await;
    declare_on(&ground, "/made/1").await;
    let edition = ground.edition();
    let (captures, initials) = ("1".into(), r#"{"list":[1]}"#.into());
    let second = ResourceDeclaration { resource: 1, path: "/made/2", captures, initials, after: None };
    assert_eq!(edition.declare(second).await.unwrap_err().code(), "state-full");
    assert!(edition.instance("/made/2").await.unwrap().is_none());
    edition.remove("/made/1", &HeldLocks::none(), "a test").await.unwrap();
    assert_eq!(total(&ground), 0);
    declare_on(&ground, "/made/2").await;
}

#[tokio::test]
async fn refuses_a_resource_whose_captures_and_path_exceed_the_limit() {
    let most = 1 << 20;
    let ground = bounded(nested(), most).await;
    let edition = ground.edition();
    let captures = format!("\"{}\"", "x".repeat(MAX_CAPTURES - 2));
    let mut made = 0;
    let refused = loop {
        let path = format!("/made/{made}");
        let (captures, initials) = (captures.clone().into(), "".into());
        let declaration = ResourceDeclaration { resource: 1, path: &path, captures, initials, after: None };
        match edition.declare(declaration).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((made, refused.code(), refused.status()), (3, "state-full", 503));
    assert!(total(&ground) <= most);
    edition.remove("/made/1", &HeldLocks::none(), "a test").await.unwrap();
    declare_on(&ground, "/made/1").await;
}

#[tokio::test]
async fn a_resource_counts_at_least_its_memory() {
    let ground = bounded(nested(), 1 << 20).await;
    let path = format!("/made/{}", "x".repeat(1000));
    let (captures, initials) = ("1".into(), "".into());
    let declaration = ResourceDeclaration { resource: 1, path: &path, captures, initials, after: None };
    ground.edition().declare(declaration).await.unwrap();
    // The path, its copy in the key, the instance, and two map entries.
    assert!(total(&ground) > 2 * path.len() as u64 + 256 + 64, "{}", total(&ground));
}

#[tokio::test]
async fn a_restart_counts_the_state_before_it_is_loaded() {
    let ground = StateFixture::new(nested()).await;
    declare_on(&ground, "/made/1").await;
    ground.set(2, "/data", r#"{"name":"a"}"#).await;
    let before = total(&ground);
    let ground = ground.restart(nested()).await;
    assert_eq!(total(&ground), before);
    assert_eq!(ground.value(2, "/data").await, [Some(json!({ "name": "a" }))]);
    assert_eq!(total(&ground), before);
}
