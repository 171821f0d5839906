//! Work that takes long: it is done in the pool, outside of locks, with the same result.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use offload::{JobRequest, QuotaKey};
use serde_json::{Map, Value, json};
use store::WriteBatch;

use super::instances::{declare_new, nested_plan};
use super::replica::{WorkerReplica, apply_edit};
use super::{
    StateFixture, StateSettings, counter_plan, plan_cell, read_ticket, set_value, test_plan, write_ticket,
};
use crate::state::cell::MAX_LOCKED_TEXT;
use crate::state::groups::group::{CELLS_PER_PAGE, CellGroupState, UNSYNCED_EPOCH};
use crate::state::groups::instances::encode_record;
use crate::state::{CellScope, DurableCommit, HeldLocks, StateError, StatePlan};

/// The number of items of a long list: its text is long, and so is its removal.
const LONG: usize = 40_000;

fn payer() -> QuotaKey {
    QuotaKey::new(&"payer")
}

/// The number of jobs for state so far.
fn state_jobs(fixture: &StateFixture) -> u64 {
    fixture.states.0.offload.stats().kinds.get("script-state").map_or(0, |kind| kind.jobs)
}

fn number_list(length: usize) -> Vec<usize> {
    (0..length).collect()
}

/// Returns the result of a future, and the number of polls that it took.
async fn count_polls<T>(future: impl Future<Output = T>) -> (T, usize) {
    let (mut future, mut polls) = (pin!(future), 0);
    let result = poll_fn(|context| {
        polls += 1;
        future.as_mut().poll(context)
    });
    (result.await, polls)
}

/// Returns a plan with a group of the whole service that has a cell at each path.
fn scattered_plan() -> StatePlan {
    let cells = vec![
        plan_cell("n", CellScope::Service, false),
        plan_cell("/data own", CellScope::Resource(0), false),
    ];
    test_plan(cells, &[(0, &[0, 1])])
}

/// Commits like a run.
async fn commit_changes(fixture: &StateFixture, changes: &Value) -> Result<DurableCommit, StateError> {
    let ticket = write_ticket(&fixture.edition(), 0, "/data").await?;
    ticket.commit_offloaded(1, Bytes::from(changes.to_string()), None, payer()).await
}

async fn read_value(fixture: &StateFixture) -> Value {
    fixture.read_values(0, "/data").await.pop().flatten().unwrap_or_default()
}

#[tokio::test]
async fn a_long_change_set_is_applied_in_the_pool_and_charged() {
    let fixture = StateFixture::new(counter_plan()).await;
    let mut model = number_list(LONG);
    commit_changes(&fixture, &json!([[0, [], model]])).await.unwrap().wait().await.unwrap();
    assert_eq!(state_jobs(&fixture), 1);
    commit_changes(&fixture, &json!([[0, [0], 7], [0, [1], 8]])).await.unwrap().wait().await.unwrap();
    (model[0], model[1]) = (7, 8);
    assert_eq!(state_jobs(&fixture), 1, "a short change of a long value is applied at once");
    assert_eq!(read_value(&fixture).await, json!(model));
    let quota = fixture.states.0.offload.quota();
    assert!(quota.try_charge(payer(), Duration::from_secs(3600), Instant::now()).is_ok());
    commit_changes(&fixture, &json!([[0, ["length"], 1], [0, [1], number_list(LONG)]]))
        .await
        .unwrap()
        .wait()
        .await
        .unwrap();
    assert_eq!(
        read_value(&fixture).await,
        json!([7, number_list(LONG)]),
        "not delayed, although the quota is used up"
    );
}

#[tokio::test]
async fn a_short_change_set_that_removes_a_long_value_is_applied_in_the_pool() {
    for removal in [json!([0, ["l"]]), json!([0, ["l"], 1]), json!([0, ["l", "length"], 2]), json!([0, []])] {
        let fixture = StateFixture::new(counter_plan()).await;
        commit_changes(&fixture, &json!([[0, [], { "l": number_list(LONG) }]]))
            .await
            .unwrap()
            .wait()
            .await
            .unwrap();
        let before = state_jobs(&fixture);
        commit_changes(&fixture, &json!([[0, ["m"], 1]])).await.unwrap().wait().await.unwrap();
        assert_eq!(state_jobs(&fixture), before);
        let changes = json!([[0, ["n"], 2], removal]);
        commit_changes(&fixture, &changes).await.unwrap().wait().await.unwrap();
        assert!(state_jobs(&fixture) > before, "{removal}");
        let mut model = Some(json!({ "l": number_list(LONG), "m": 1 }));
        changes.as_array().unwrap().iter().for_each(|edit| apply_edit(&mut model, edit));
        assert_eq!(read_value(&fixture).await, model.unwrap_or_default(), "{removal}");
    }
}

#[tokio::test]
async fn an_invalid_long_change_set_is_refused_without_an_effect() {
    let fixture = StateFixture::new(test_plan(
        vec![plan_cell("a", CellScope::Service, false), plan_cell("b", CellScope::Service, false)],
        &[(0, &[0, 1])],
    ))
    .await;
    commit_changes(&fixture, &json!([[0, [], [1]], [1, [], [2]]])).await.unwrap().wait().await.unwrap();
    let mut replica = WorkerReplica::new(1);
    replica.read_values(&mut read_ticket(&fixture.edition(), 0, "/data").await.unwrap());
    for invalid in [json!([1, [7], 1]), json!([2, [], 1])] {
        let refused = commit_changes(&fixture, &json!([[0, [1], number_list(LONG)], [1, [0], 3], invalid]))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), "state-changes-invalid");
        let values = replica.read_values(&mut read_ticket(&fixture.edition(), 0, "/data").await.unwrap());
        assert_eq!(values, [Some(json!([1])), Some(json!([2]))], "the worker gets the values again");
        assert!(replica.frames >= 4);
    }
    commit_changes(&fixture, &json!([[0, [1], 4], [1, [1], 5]])).await.unwrap().wait().await.unwrap();
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!([1, 4])), Some(json!([2, 5]))]);
}

#[tokio::test]
async fn a_long_change_set_beyond_the_size_limit_is_refused_without_an_effect() {
    let settings = StateSettings { size: 100_000, ..StateSettings::default() };
    let fixture =
        StateFixture::with_settings(Arc::new(tempfile::tempdir().unwrap()), counter_plan(), settings).await;
    commit_changes(&fixture, &json!([[0, [], { "b": 1, "a": 2 }]])).await.unwrap().wait().await.unwrap();
    let early = commit_changes(&fixture, &json!([[0, ["c"], 3]])).await.unwrap();
    let refused =
        commit_changes(&fixture, &json!([[0, ["b"]], [0, ["d"], number_list(LONG)]])).await.unwrap_err();
    assert_eq!(refused.code(), "state-full");
    commit_changes(&fixture, &json!([[0, ["d"], 4]])).await.unwrap().wait().await.unwrap();
    early.wait().await.unwrap();
    assert_eq!(read_value(&fixture).await.to_string(), r#"{"b":1,"a":2,"c":3,"d":4}"#, "including the order");
}

#[tokio::test]
async fn a_long_change_set_that_the_pool_refuses_has_no_effect() {
    let fixture = StateFixture::new(counter_plan()).await;
    commit_changes(&fixture, &json!([[0, [], number_list(LONG)]])).await.unwrap().wait().await.unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let request = JobRequest { kind: "test", payer: payer().exempt(), estimate: Duration::ZERO, deadline };
    let pool = fixture.states.0.offload.clone();
    let mut queued = vec![pool.run(request, move |_| blocked.recv().is_ok()).boxed()];
    while queued.last_mut().unwrap().now_or_never().is_none() {
        queued.push(pool.run(request, |_| true).boxed());
    }
    let refused = commit_changes(&fixture, &json!([[0, [0], number_list(LONG)]])).await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("answer-unfinished", 503));
    drop(release);
    drop(queued);
    let before = state_jobs(&fixture);
    commit_changes(&fixture, &json!([[0, [0], 1]])).await.unwrap().wait().await.unwrap();
    let mut model = number_list(LONG);
    model[0] = 1;
    assert_eq!(read_value(&fixture).await, json!(model));
    assert_eq!(state_jobs(&fixture), before, "the tree was put back");
}

#[tokio::test]
async fn a_commit_that_has_begun_is_completed_without_its_caller() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    let changes = json!([[0, [], number_list(LONG)]]);
    // The ticket is ready at once, so the first poll begins the commit.
    assert!(commit_changes(&fixture, &changes).boxed().now_or_never().is_none());
    let next = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    next.commit(1, format!("[[0,[{LONG}],1]]").as_bytes()).unwrap().wait().await.unwrap();
    assert_eq!(read_value(&fixture).await.as_array().map(Vec::len), Some(LONG + 1));
}

#[tokio::test]
async fn a_worker_gets_the_values_again_if_its_run_may_have_ended_without_a_commit() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    for is_rolled_back in [false, true] {
        let mut ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
        let before = ticket.cells().to_vec();
        ticket.collect_frames(1);
        ticket.mark_started();
        if is_rolled_back {
            ticket.mark_ended();
        }
        drop(ticket);
        let next = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
        assert_eq!(next.cells() == before, is_rolled_back);
    }
}

#[tokio::test]
async fn long_values_are_compacted_and_loaded_in_the_pool() {
    let fixture = StateFixture::new(counter_plan()).await;
    commit_changes(&fixture, &json!([[0, [], { "long": "x".repeat(2 * MAX_LOCKED_TEXT) }]]))
        .await
        .unwrap()
        .wait()
        .await
        .unwrap();
    let before = state_jobs(&fixture);
    let mut last = None;
    for number in 0..600 {
        last = Some(commit_changes(&fixture, &json!([[0, [format!("n{number}")], number]])).await.unwrap());
    }
    last.unwrap().wait().await.unwrap();
    let compacted = async {
        while state_jobs(&fixture) == before {
            tokio::task::yield_now().await;
        }
    };
    testkit::with_timeout("a compaction", compacted).await;
    let all = read_value(&fixture).await;
    assert_eq!(all.as_object().map(Map::len), Some(601));
    set_value(&fixture.edition(), 0, "/data", "0").await.unwrap().wait().await.unwrap();
    assert_eq!(read_value(&fixture).await, json!(0), "a compaction in progress does not undo it");
    commit_changes(&fixture, &json!([[0, [], all]])).await.unwrap().wait().await.unwrap();
    commit_changes(&fixture, &json!([[0, ["last"], true]])).await.unwrap().wait().await.unwrap();
    let state_fixture = fixture.restart(counter_plan()).await;
    assert_eq!(state_jobs(&state_fixture), 0);
    assert_eq!(read_value(&state_fixture).await["last"], true);
    assert_eq!(state_jobs(&state_fixture), 1, "the change was applied to the long value");
}

#[tokio::test]
async fn many_changes_are_sent_to_a_worker_in_parts() {
    let fixture = StateFixture::new(counter_plan()).await;
    commit_changes(&fixture, &json!([[0, [], ["x".repeat(500_000)]]])).await.unwrap().wait().await.unwrap();
    let mut last = None;
    for number in 1..=1200 {
        last = Some(commit_changes(&fixture, &json!([[0, [number], number]])).await.unwrap());
    }
    last.unwrap().wait().await.unwrap();
    let mut ticket = read_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    let (mut parts, mut sent) = (1, ticket.collect_frames(1));
    while ticket.has_more_frames() {
        parts += 1;
        sent.extend(ticket.collect_frames(1));
    }
    assert!(parts >= 3 && sent.len() > parts, "{parts} parts, {} frames", sent.len());
    assert!(ticket.collect_frames(1).is_empty());
    let read = WorkerReplica::new(2).read_values(&mut ticket);
    assert_eq!(read[0].as_ref().and_then(Value::as_array).map(Vec::len), Some(1201));
}

#[tokio::test]
async fn maintenance_goes_through_many_groups_in_parts() {
    let fixture = StateFixture::new(test_plan(
        vec![plan_cell("/data own", CellScope::Resource(0), false)],
        &[(0, &[0])],
    ))
    .await;
    for number in 0..600 {
        read_ticket(&fixture.edition(), 0, &format!("/{number}")).await.unwrap();
    }
    let home = Arc::clone(&fixture.edition().service_groups);
    assert_eq!(home.groups().len(), 600);
    let ((), polls) = count_polls(fixture.states.tick(SystemTime::now())).await;
    assert!(polls >= 6, "{polls} polls");
    for _ in 0..62 {
        fixture.tick().await;
    }
    assert_eq!(home.groups().len(), 0, "all are idle");
}

#[tokio::test]
async fn a_group_of_many_cells_is_loaded_in_parts_and_in_the_pool() {
    const COUNT: usize = 2 * CELLS_PER_PAGE + 1;
    let fixture = StateFixture::new(scattered_plan()).await;
    let ticket = write_ticket(&fixture.edition(), 0, "/0").await.unwrap();
    ticket.commit(1, b"[[0,[],1],[1,[],2]]").unwrap().wait().await.unwrap();
    for number in 0..COUNT {
        read_ticket(&fixture.edition(), 0, &format!("/{number}")).await.unwrap();
    }
    let version = read_ticket(&fixture.edition(), 0, "/0").await.unwrap().version();
    let (edition, group) = (fixture.edition(), fixture.edition().service_groups.groups().pop().unwrap());
    assert_eq!(group.lock().cells.len(), COUNT + 1);
    let before = state_jobs(&fixture);
    group.lock().synced_epoch = UNSYNCED_EPOCH;
    let (ticket, polls) = count_polls(read_ticket(&edition, 0, "/0")).await;
    assert_eq!(ticket.unwrap().version(), version, "nothing has changed");
    assert!(polls >= 5, "{polls} polls");
    assert_eq!(state_jobs(&fixture), before + 1);
    assert_eq!(fixture.read_values(0, "/0").await, [Some(json!(1)), Some(json!(2))]);
    // Another gateway writes all other cells.
    let mut batch = WriteBatch::new();
    for number in 1..COUNT {
        let key = edition.service_groups.keys.cell_key(&format!("/{number}"), "/data own");
        batch = batch.create(key, number.to_string());
    }
    fixture.states.0.store.commit(batch).await.unwrap();
    group.lock().synced_epoch = UNSYNCED_EPOCH;
    let (ticket, polls) = count_polls(read_ticket(&edition, 0, "/7")).await;
    assert!(ticket.unwrap().version() >= version + 2 * CELLS_PER_PAGE as u64);
    assert!(polls >= 6, "{polls} polls");
    assert_eq!(state_jobs(&fixture), before + 2);
    for number in [7, COUNT - 1] {
        let value = fixture.read_values(0, &format!("/{number}")).await;
        assert_eq!(value, [Some(json!(1)), Some(json!(number))]);
    }
    drop((edition, group));
    let state_fixture = fixture.restart(scattered_plan()).await;
    assert_eq!(state_jobs(&state_fixture), 0);
    assert!(
        read_ticket(&state_fixture.edition(), 0, "/7").await.unwrap().version() >= 2 * CELLS_PER_PAGE as u64
    );
    assert_eq!(state_jobs(&state_fixture), 1, "the versions of all cells are added up");
}

#[tokio::test]
async fn a_run_is_sent_all_changes_of_another_gateway_or_none() {
    const COUNT: usize = 2 * CELLS_PER_PAGE + 1;
    let fixture = StateFixture::new(scattered_plan()).await;
    let ticket = write_ticket(&fixture.edition(), 0, "/0").await.unwrap();
    ticket.commit(1, b"[[0,[],1],[1,[],1]]").unwrap().wait().await.unwrap();
    for number in 0..COUNT {
        read_ticket(&fixture.edition(), 0, &format!("/{number}")).await.unwrap();
    }
    let (edition, group) = (fixture.edition(), fixture.edition().service_groups.groups().pop().unwrap());
    let mut running = read_ticket(&edition, 0, "/0").await.unwrap();
    assert_eq!(running.collect_frames(7).len(), 2);
    let keys = &edition.service_groups.keys;
    let mut batch = WriteBatch::new().put(keys.shared_cell_key("n"), "2");
    for number in 0..COUNT {
        batch = batch.put(keys.cell_key(&format!("/{number}"), "/data own"), "2");
    }
    fixture.states.0.store.commit(batch).await.unwrap();
    group.lock().synced_epoch = UNSYNCED_EPOCH;
    let (mut reading, mut sent) = (pin!(read_ticket(&edition, 0, "/0")), Vec::new());
    let loaded = poll_fn(|context| {
        let loaded = reading.as_mut().poll(context);
        let frames = running.collect_frames(7);
        if !running.has_more_frames() && !frames.is_empty() {
            sent.push(frames.len());
        }
        // Looks at the group after each page.
        context.waker().wake_by_ref();
        loaded
    });
    testkit::with_timeout("the changes", loaded).await.unwrap();
    assert_eq!(sent, [2]);
    assert_eq!(fixture.read_values(0, "/0").await, [Some(json!(2)), Some(json!(2))]);
}

#[tokio::test]
async fn many_cells_are_put_in_place_even_if_the_request_ends() {
    const COUNT: usize = 2 * CELLS_PER_PAGE + 1;
    let fixture = StateFixture::new(scattered_plan()).await;
    for number in 0..COUNT {
        read_ticket(&fixture.edition(), 0, &format!("/{number}")).await.unwrap();
    }
    let (edition, group) = (fixture.edition(), fixture.edition().service_groups.groups().pop().unwrap());
    let mut batch = WriteBatch::new();
    for number in 0..COUNT {
        batch = batch.create(edition.service_groups.keys.cell_key(&format!("/{number}"), "/data own"), "2");
    }
    fixture.states.0.store.commit(batch).await.unwrap();
    group.lock().synced_epoch = UNSYNCED_EPOCH;
    let stored = || group.lock().cells.values().filter(|cell| cell.stored_version > 0).count();
    {
        let mut reading = pin!(read_ticket(&edition, 0, "/0"));
        let begun = poll_fn(|context| {
            if stored() > 0 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            reading.as_mut().poll(context).map(|_| ())
        });
        testkit::with_timeout("the first page", begun).await;
    }
    assert!(stored() < COUNT, "the request ends before the last page");
    let complete = async {
        while stored() < COUNT {
            tokio::task::yield_now().await;
        }
    };
    testkit::with_timeout("the last page", complete).await;
}

#[tokio::test]
async fn a_refused_commit_resets_only_its_own_cells() {
    let fixture = StateFixture::new(scattered_plan()).await;
    let edition = fixture.edition();
    let mut before = Vec::new();
    for path in ["/0", "/1"] {
        let ticket = write_ticket(&edition, 0, path).await.unwrap();
        before.push(ticket.cells().to_vec());
        ticket.commit(1, b"[[0,[],1],[1,[],1]]").unwrap().wait().await.unwrap();
    }
    let running = write_ticket(&edition, 0, "/0").await.unwrap();
    fixture.invalidate_lease(&edition.service_groups.groups().pop().unwrap().lease_name).await;
    let refused = running.commit(1, b"[[0,[],2],[1,[],2]]").unwrap().wait().await.unwrap_err();
    assert_eq!(refused.code(), "state-lease-lost");
    let mut is_same = Vec::new();
    for (path, before) in ["/0", "/1"].into_iter().zip(before) {
        let after = read_ticket(&edition, 0, path).await.unwrap();
        is_same
            .push(Vec::from_iter(after.cells().iter().zip(before).map(|(after, before)| *after == before)));
        assert_eq!(fixture.read_values(0, path).await, [Some(json!(1)), Some(json!(1))]);
    }
    assert_eq!(is_same, [[false, false], [false, true]]);
}

#[tokio::test]
async fn a_refused_removal_resets_the_cells_of_the_instance() {
    let cells = vec![
        plan_cell("shared", CellScope::Service, false),
        plan_cell("/data POST > /made s", CellScope::Resource(1), false),
    ];
    let fixture = StateFixture::new(test_plan(cells, &[(1, &[0, 1])])).await;
    declare_new(&fixture, "/made/1").await;
    let edition = fixture.edition();
    let ticket = write_ticket(&edition, 0, "/made/1").await.unwrap();
    ticket.commit(1, b"[[0,[],1],[1,[],1]]").unwrap().wait().await.unwrap();
    let running = write_ticket(&edition, 0, "/made/1").await.unwrap();
    fixture.invalidate_lease(&edition.service_groups.groups().pop().unwrap().lease_name).await;
    let removal = running.commit_and_remove(1, b"[[0,[],2],[1,[],2]]", "/made/1").unwrap();
    assert_eq!(removal.wait().await.unwrap_err().code(), "state-lease-lost");
    assert_eq!(fixture.read_values(0, "/made/1").await, [Some(json!(1)), Some(json!(1))]);
    let version = read_ticket(&edition, 0, "/made/1").await.unwrap().version();
    let ticket = write_ticket(&edition, 0, "/made/1").await.unwrap();
    assert_eq!(ticket.version(), version);
    ticket.commit(1, b"[[1,[],3]]").unwrap().wait().await.unwrap();
    assert_eq!(fixture.read_values(0, "/made/1").await, [Some(json!(1)), Some(json!(3))]);
}

#[tokio::test]
async fn copies_of_many_cells_are_discarded_in_parts() {
    const COUNT: usize = 2 * CELLS_PER_PAGE + 1;
    let fixture = StateFixture::new(scattered_plan()).await;
    for number in 0..COUNT {
        read_ticket(&fixture.edition(), 0, &format!("/{number}")).await.unwrap().collect_frames(1);
    }
    let discarded = || fixture.states.0.workers.collect_frames(1, |_, _| {}).len();
    fixture.edition().service_groups.groups().pop().unwrap().close(CellGroupState::Closed);
    let mut count = discarded();
    assert_eq!(count, CELLS_PER_PAGE);
    let rest = async {
        while count < COUNT + 1 {
            tokio::task::yield_now().await;
            count += discarded();
        }
    };
    testkit::with_timeout("the other copies", rest).await;
    assert_eq!(count, COUNT + 1);
}

#[tokio::test]
async fn a_removed_resource_with_a_long_value_is_dropped_in_the_pool() {
    let cells = vec![
        plan_cell("shared", CellScope::Service, false),
        plan_cell("/data POST > /made s", CellScope::Resource(1), false),
    ];
    // Its cell is in the group of the service, or in one of its own.
    for (plan, slot) in [(test_plan(cells, &[(1, &[0, 1])]), 1), (nested_plan(), 0)] {
        let fixture = StateFixture::new(plan).await;
        let changes = json!([[slot, [], number_list(LONG)]]).to_string();
        for path in ["/made/1", "/made/2"] {
            declare_new(&fixture, path).await;
            let ticket = write_ticket(&fixture.edition(), 0, path).await.unwrap();
            ticket.commit(1, changes.as_bytes()).unwrap().wait().await.unwrap();
        }
        let before = state_jobs(&fixture);
        assert!(fixture.edition().remove_instance("/made/1", &HeldLocks::empty(), "a test").await.unwrap());
        let dropped = async {
            while state_jobs(&fixture) == before {
                tokio::task::yield_now().await;
            }
        };
        testkit::with_timeout("the end of the removed value", dropped).await;
        assert_eq!(fixture.read_values(0, "/made/2").await[slot], Some(json!(number_list(LONG))));
    }
}

#[tokio::test]
async fn many_instances_of_another_gateway_are_loaded_and_dropped_in_parts() {
    const COUNT: usize = 1500;
    let fixture = StateFixture::new(nested_plan()).await;
    let (home, before) = (Arc::clone(&fixture.edition().service_groups), state_jobs(&fixture));
    let long = format!("\"{}\"", "x".repeat(MAX_LOCKED_TEXT));
    let mut batch = WriteBatch::new();
    for number in 0..COUNT {
        let captures = if number == 0 { &*long } else { "1" };
        let record = encode_record("/data POST > /made", None, captures.as_bytes()).unwrap();
        batch = batch.create(home.keys.declaration_key(&format!("/made/{number}")), record);
    }
    home.shared.store.commit(batch).await.unwrap();
    let (loaded, polls) = count_polls(home.load_instances()).await;
    loaded.unwrap();
    assert!(polls >= 10, "{polls} polls");
    assert_eq!(state_jobs(&fixture), before + 2, "one compares, another parses the long record");
    assert!((0..COUNT).all(|number| home.instances.find(&format!("/made/{number}")).is_some()));
    home.shared.store.commit(WriteBatch::new().remove_all(home.keys.declaration_key(""))).await.unwrap();
    let (dropped, polls) = count_polls(home.load_instances()).await;
    dropped.unwrap();
    assert!(polls >= 10, "{polls} polls");
    assert_eq!(state_jobs(&fixture), before + 3);
    assert!((0..COUNT).all(|number| home.instances.find(&format!("/made/{number}")).is_none()));
}
