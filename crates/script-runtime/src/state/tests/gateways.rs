//! Two gateways that share a store, as during a handover.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use store::Durability;

use super::instances::{declare_on, nested};
use super::{Ground, Settings, counter, pool, read, set, write};
use crate::state::{Held, States};

#[tokio::test]
async fn a_writer_waits_for_the_lease_of_a_draining_gateway() {
    let old = Ground::new(counter()).await;
    old.set(0, "/data", "1").await;
    let new = old.beside(counter()).await;
    let waiting = tokio::spawn({
        let edition = new.edition();
        async move { set(&edition, 0, "/data", "2").await.unwrap().wait().await }
    });
    tokio::task::yield_now().await;
    old.states.drain().await;
    waiting.await.unwrap().unwrap();
    assert_eq!(new.value(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn a_draining_gateway_releases_its_lease_after_the_last_writer() {
    let old = Ground::new(counter()).await;
    let running = write(&old.edition(), 0, "/data").await.unwrap();
    old.states.drain().await;
    let new = old.beside(counter()).await;
    running.commit(1, b"[[0,[],1]]").unwrap().wait().await.unwrap();
    new.set(0, "/data", "2").await;
    assert_eq!(new.value(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn waiting_too_long_for_another_gateway_s_lease_is_an_error() {
    let old = Ground::new(counter()).await;
    old.set(0, "/data", "1").await;
    let settings = Settings { patience: Duration::ZERO, ..Settings::default() };
    let new = Ground::on(Arc::clone(&old.folder), counter(), settings).await;
    let refused = write(&new.edition(), 0, "/data").await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-lease-taken", 503));
}

#[tokio::test]
async fn a_write_after_a_lost_lease_fails_and_is_dropped() {
    let old = Ground::new(counter()).await;
    old.set(0, "/data", "1").await;
    let running = write(&old.edition(), 0, "/data").await.unwrap();
    old.steal("Shop/shared/n").await;
    let lost = running.commit(1, b"[[0,[],2]]").unwrap().wait().await.unwrap_err();
    assert_eq!((lost.code(), lost.status()), ("state-lease-lost", 503));
    assert_eq!(old.value(0, "/data").await, [Some(json!(1))]);
    old.set(0, "/data", "3").await;
    assert_eq!(old.value(0, "/data").await, [Some(json!(3))]);
}

#[tokio::test]
async fn readers_see_commits_of_another_gateway_at_a_later_version() {
    let old = Ground::new(counter()).await;
    old.set(0, "/data", "[1]").await;
    let new = old.beside(counter()).await;
    assert_eq!(new.value(0, "/data").await, [Some(json!([1]))]);
    let before = read(&new.edition(), 0, "/data").await.unwrap().version();
    let ticket = write(&old.edition(), 0, "/data").await.unwrap();
    ticket.commit(1, b"[[0,[1],2]]").unwrap().wait().await.unwrap();
    let epoch = new.states.0.epoch();
    // The change is detected within a tenth of a second.
    while new.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    assert_eq!(new.value(0, "/data").await, [Some(json!([1, 2]))]);
    assert!(read(&new.edition(), 0, "/data").await.unwrap().version() > before);
}

#[tokio::test]
async fn instances_created_or_removed_by_another_gateway_are_detected() {
    let old = Ground::new(nested()).await;
    let new = old.beside(nested()).await;
    let epoch = new.states.0.epoch();
    declare_on(&old, "/made/1").await;
    while new.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    assert!(new.edition().instance("/made/1").await.unwrap().is_some());
    let epoch = old.states.0.epoch();
    assert!(new.edition().remove("/made/1", &Held::none(), "a test").await.unwrap());
    while old.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    old.tick().await;
    assert!(old.edition().instance("/made/1").await.unwrap().is_none());
}

#[tokio::test]
async fn the_leases_of_a_killed_gateway_are_taken_over_at_once() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let states = States::open(folder.path(), Durability::Process, pool()).unwrap();
    let dead = "00000000deadbeef.gateway";
    states.0.store.lease("Shop/shared/n", dead, Duration::from_secs(3600)).await.unwrap();
    drop(states);
    std::fs::write(folder.path().join(dead), "").unwrap();
    let settings = Settings { patience: Duration::ZERO, ..Settings::default() };
    let ground = Ground::on(folder, counter(), settings).await;
    ground.set(0, "/data", "1").await;
    assert_eq!(ground.value(0, "/data").await, [Some(json!(1))]);
}
