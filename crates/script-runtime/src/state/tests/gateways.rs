//! Two gateways that share a store, as during a handover.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use store::CommitDurability;

use super::instances::{declare_new, nested_plan};
use super::replica::WorkerReplica;
use super::{
    CellScope, StateFixture, StateSettings, counter_plan, offload_pool, plan_cell, read_ticket, set_value,
    test_plan, write_ticket,
};
use crate::state::groups::group::UNSYNCED_EPOCH;
use crate::state::{HeldLocks, StateRegistry};

#[tokio::test]
async fn a_writer_waits_for_the_lease_of_a_draining_gateway() {
    let old = StateFixture::new(counter_plan()).await;
    old.set_value(0, "/data", "1").await;
    let new = old.second_gateway(counter_plan()).await;
    let waiting = tokio::spawn({
        let edition = new.edition();
        async move { set_value(&edition, 0, "/data", "2").await.unwrap().wait().await }
    });
    tokio::task::yield_now().await;
    old.states.drain().await;
    waiting.await.unwrap().unwrap();
    assert_eq!(new.read_values(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn a_draining_gateway_releases_its_lease_after_the_last_writer() {
    let old = StateFixture::new(counter_plan()).await;
    let running = write_ticket(&old.edition(), 0, "/data").await.unwrap();
    old.states.drain().await;
    let new = old.second_gateway(counter_plan()).await;
    running.commit(1, b"[[0,[],1]]").unwrap().wait().await.unwrap();
    new.set_value(0, "/data", "2").await;
    assert_eq!(new.read_values(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn waiting_too_long_for_another_gateway_s_lease_is_an_error() {
    let old = StateFixture::new(counter_plan()).await;
    old.set_value(0, "/data", "1").await;
    let settings = StateSettings { max_lease_wait: Duration::ZERO, ..StateSettings::default() };
    let new = StateFixture::with_settings(Arc::clone(&old.folder), counter_plan(), settings).await;
    let refused = write_ticket(&new.edition(), 0, "/data").await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-lease-taken", 503));
}

#[tokio::test]
async fn a_write_after_a_lost_lease_fails_and_is_dropped() {
    let old = StateFixture::new(counter_plan()).await;
    old.set_value(0, "/data", "1").await;
    let running = write_ticket(&old.edition(), 0, "/data").await.unwrap();
    old.invalidate_lease("Shop/shared/n").await;
    let lost = running.commit(1, b"[[0,[],2]]").unwrap().wait().await.unwrap_err();
    assert_eq!((lost.code(), lost.status()), ("state-lease-lost", 503));
    assert_eq!(old.read_values(0, "/data").await, [Some(json!(1))]);
    old.set_value(0, "/data", "3").await;
    assert_eq!(old.read_values(0, "/data").await, [Some(json!(3))]);
}

#[tokio::test]
async fn readers_see_commits_of_another_gateway_at_a_later_version() {
    let old = StateFixture::new(counter_plan()).await;
    old.set_value(0, "/data", "[1]").await;
    let new = old.second_gateway(counter_plan()).await;
    assert_eq!(new.read_values(0, "/data").await, [Some(json!([1]))]);
    let before = read_ticket(&new.edition(), 0, "/data").await.unwrap().version();
    let ticket = write_ticket(&old.edition(), 0, "/data").await.unwrap();
    ticket.commit(1, b"[[0,[1],2]]").unwrap().wait().await.unwrap();
    let epoch = new.states.0.epoch();
    // The change is detected within a tenth of a second.
    while new.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    assert_eq!(new.read_values(0, "/data").await, [Some(json!([1, 2]))]);
    assert!(read_ticket(&new.edition(), 0, "/data").await.unwrap().version() > before);
}

#[tokio::test]
async fn readers_do_not_use_a_writer_s_copies_of_cells_if_another_gateway_commits_meanwhile() {
    let cells = || vec![plan_cell("a", CellScope::Service, false), plan_cell("b", CellScope::Service, false)];
    let two = || test_plan(cells(), &[(0, &[0, 1])]);
    let old = StateFixture::new(two()).await;
    let first = write_ticket(&old.edition(), 0, "/data").await.unwrap();
    first.commit(0, b"[[0,[],1],[1,[],[1]]]").unwrap().wait().await.unwrap();
    let new = old.second_gateway(two()).await;
    let mut replica = WorkerReplica::new(1);
    let mut running = write_ticket(&old.edition(), 0, "/data").await.unwrap();
    replica.begin_write(&mut running);
    // Workers write in place, at the version that the writer produces.
    let uncommitted = [Some(json!("uncommitted")), Some(json!("uncommitted"))];
    replica.record_write(running.cells(), running.version() + 1, &uncommitted);
    let shared = &old.states.0;
    let holder = Arc::clone(shared.lease_owner.name());
    let lease = shared.store.acquire_lease("Shop/shared/a", holder, Duration::from_secs(1)).await.unwrap();
    shared.store.release(&lease).await.unwrap();
    let other = write_ticket(&new.edition(), 0, "/data").await.unwrap();
    other.commit(0, b"[[1,[1],2]]").unwrap().wait().await.unwrap();
    old.edition().service_groups.get_or_create_group("a", "/data").unwrap().lock().synced_epoch =
        UNSYNCED_EPOCH;
    let mut reader = read_ticket(&old.edition(), 0, "/data").await.unwrap();
    assert_ne!(reader.cells()[0], running.cells()[0], "a cell that only the writer changed");
    assert_ne!(reader.cells()[1], running.cells()[1], "a cell that both changed");
    let values = [Some(json!(1)), Some(json!([1, 2]))];
    let refused = running.commit(1, b"[[1,[0],3]]").unwrap();
    assert_eq!(
        replica.read_values(&mut reader),
        values,
        "the writer's worker has no copy with the new number"
    );
    refused.wait().await.unwrap_err();
    let mut reader = read_ticket(&old.edition(), 0, "/data").await.unwrap();
    assert_eq!(replica.read_values(&mut reader), values);
}

#[tokio::test]
async fn instances_created_or_removed_by_another_gateway_are_detected() {
    let old = StateFixture::new(nested_plan()).await;
    let new = old.second_gateway(nested_plan()).await;
    let epoch = new.states.0.epoch();
    declare_new(&old, "/made/1").await;
    while new.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    assert!(new.edition().find_instance("/made/1").await.unwrap().is_some());
    let epoch = old.states.0.epoch();
    assert!(new.edition().remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
    while old.states.0.epoch() == epoch {
        tokio::task::yield_now().await;
    }
    old.tick().await;
    assert!(old.edition().find_instance("/made/1").await.unwrap().is_none());
}

#[tokio::test]
async fn the_leases_of_a_killed_gateway_are_taken_over_at_once() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let states = StateRegistry::open(folder.path(), CommitDurability::Process, offload_pool()).unwrap();
    let dead = "00000000deadbeef.gateway";
    states.0.store.acquire_lease("Shop/shared/n", dead, Duration::from_secs(3600)).await.unwrap();
    drop(states);
    std::fs::write(folder.path().join(dead), "").unwrap();
    let settings = StateSettings { max_lease_wait: Duration::ZERO, ..StateSettings::default() };
    let fixture = StateFixture::with_settings(folder, counter_plan(), settings).await;
    fixture.set_value(0, "/data", "1").await;
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(1))]);
}
