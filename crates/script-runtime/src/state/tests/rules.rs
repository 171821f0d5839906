//! The rules of S that the state implements, by number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::json;

use super::replica::WorkerReplica;
use super::{
    StateFixture, counter_plan, plan_cell, read_ticket, set_value, state_request, test_plan, write_ticket,
};
use crate::state::{CellScope, HeldLocks, StatePlan};

#[tokio::test]
async fn rule_1_a_cell_exists_once_per_service_or_once_per_path_of_its_resource() {
    let cells = vec![
        plan_cell("shared", CellScope::Service, false),
        plan_cell("/data own", CellScope::Resource(0), false),
    ];
    let fixture = StateFixture::new(test_plan(cells, &[(0, &[0]), (0, &[1])])).await;
    fixture.set_value(0, "/a", "1").await;
    fixture.set_value(1, "/a", "2").await;
    fixture.set_value(1, "/b", "3").await;
    assert_eq!(fixture.read_values(0, "/b").await, [Some(json!(1))]);
    assert_eq!(fixture.read_values(1, "/a").await, [Some(json!(2))]);
    assert_eq!(fixture.read_values(1, "/b").await, [Some(json!(3))]);
}

#[tokio::test]
async fn rule_5_writers_of_a_group_run_one_at_a_time_in_order_of_arrival() {
    let fixture = StateFixture::new(counter_plan()).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let first = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    let mut waiting = Vec::new();
    for number in 1..=5_u32 {
        let (edition, order) = (fixture.edition(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let ticket = write_ticket(&edition, 0, "/data").await.unwrap();
            order.lock().unwrap().push(number);
            ticket.commit(1, format!("[[0,[],{number}]]").as_bytes()).unwrap().wait().await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    assert!(order.lock().unwrap().is_empty());
    drop(first);
    for waiting in waiting {
        waiting.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn rule_5_a_run_that_throws_leaves_nothing_behind() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    let mut ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    WorkerReplica::new(1).begin_write(&mut ticket);
    drop(ticket);
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(1))]);
}

#[tokio::test]
async fn rule_5_a_writer_builds_on_the_finished_version_and_a_reader_sees_the_durable_one() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    let durable = set_value(&fixture.edition(), 0, "/data", "2").await.unwrap();
    // No await since the write, so the store has not responded.
    let mut reader = read_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    let mut replica = WorkerReplica::new(1);
    assert_eq!(replica.read_values(&mut reader), [Some(json!(1))]);
    let mut writer = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    assert_eq!(replica.begin_write(&mut writer), [Some(json!(2))]);
    durable.wait().await.unwrap();
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn rule_5_a_run_without_changes_waits_until_its_version_is_durable() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    fixture.invalidate_lease("Shop/shared/n").await;
    let commit = set_value(&fixture.edition(), 0, "/data", "2").await.unwrap();
    // No await since the write, so the store has not refused it yet.
    let nothing = write_ticket(&fixture.edition(), 0, "/data").await.unwrap().commit(1, b"").unwrap();
    assert_eq!(commit.wait().await.unwrap_err().code(), "state-lease-lost");
    assert_eq!(nothing.wait().await.unwrap_err().code(), "state-abandoned", "its version was rolled back");
}

#[tokio::test]
async fn rule_6_an_early_commit_passes_the_slot_on_while_the_run_continues() {
    let fixture = StateFixture::new(counter_plan()).await;
    let early = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    let locks = early.held_locks();
    let durable = early.commit(1, b"[[0,[],1]]").unwrap();
    // The run continues, and calls a handler that writes the same state.
    let edition = fixture.edition();
    let next = edition.write_ticket(state_request(0, "/data", &locks, "shop.sjs:9:9")).await.unwrap();
    next.commit(1, b"[[0,[],2]]").unwrap().wait().await.unwrap();
    durable.wait().await.unwrap();
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(2))]);
}

#[tokio::test]
async fn rule_7_a_run_cannot_write_the_state_that_its_caller_holds_but_may_read_it() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "1").await;
    let edition = fixture.edition();
    let outer =
        edition.write_ticket(state_request(0, "/data", &HeldLocks::empty(), "shop.sjs:3:5")).await.unwrap();
    let locks = outer.held_locks();
    let refused = edition.write_ticket(state_request(0, "/data", &locks, "shop.sjs:8:5")).await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-self-call", 508));
    let text = "shop.sjs:8:5 needs state that shop.sjs:3:5 holds, and shop.sjs:3:5 waits for shop.sjs:8:5: neither could go on";
    assert_eq!(refused.to_string(), text);
    let mut reader = edition.read_ticket(state_request(0, "/data", &locks, "shop.sjs:8:5")).await.unwrap();
    assert_eq!(WorkerReplica::new(1).read_values(&mut reader), [Some(json!(1))]);
}

#[tokio::test]
async fn rule_7_a_circular_wait_is_refused() {
    let cells = vec![plan_cell("a", CellScope::Service, false), plan_cell("b", CellScope::Service, false)];
    let fixture = StateFixture::new(test_plan(cells, &[(0, &[0]), (0, &[1])])).await;
    let edition = fixture.edition();
    let has_a =
        edition.write_ticket(state_request(0, "/data", &HeldLocks::empty(), "shop.sjs:1:1")).await.unwrap();
    let has_b =
        edition.write_ticket(state_request(1, "/data", &HeldLocks::empty(), "shop.sjs:2:2")).await.unwrap();
    let waits = tokio::spawn({
        let (edition, locks) = (edition.clone(), has_a.held_locks());
        async move { edition.write_ticket(state_request(1, "/data", &locks, "shop.sjs:3:3")).await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    let refused = edition
        .write_ticket(state_request(0, "/data", &has_b.held_locks(), "shop.sjs:4:4"))
        .await
        .unwrap_err();
    assert_eq!((refused.code(), refused.status()), ("state-circle", 508));
    drop(has_b);
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn rule_8_only_eager_cells_are_initialised_and_only_once() {
    let cells = vec![
        plan_cell("n", CellScope::Service, true),
        plan_cell("/data m", CellScope::Resource(0), true),
        plan_cell("/data GET k", CellScope::Handler(0), false),
    ];
    let plan = test_plan(cells, &[(0, &[0, 1, 2])]);
    let fixture = StateFixture::new(plan.clone()).await;
    let (edition, none) = (fixture.edition(), HeldLocks::empty());
    let request = state_request(0, "/data", &none, "shop.sjs:1:1");
    let ticket = edition.initialisation_ticket(request).await.unwrap().expect("nothing has a value");
    assert_eq!(ticket.planned_cells(), [0, 1]);
    let second = tokio::spawn({
        let edition = edition.clone();
        async move {
            edition
                .initialisation_ticket(state_request(0, "/data", &HeldLocks::empty(), "shop.sjs:1:1"))
                .await
                .map(|it| it.is_none())
        }
    });
    tokio::task::yield_now().await;
    ticket.commit(1, b"[[0,[],0],[1,[],[]]]").unwrap().wait().await.unwrap();
    assert!(second.await.unwrap().unwrap(), "the waiting run has nothing left to initialise");
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(0)), Some(json!([])), None]);
    let ticket = edition
        .initialisation_ticket(state_request(0, "/other", &none, "shop.sjs:1:1"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        ticket.planned_cells(),
        [1],
        "another path has its own cell of the resource, and shares that of the service"
    );
    drop((ticket, edition));
    let state_fixture = fixture.restart(plan).await;
    assert!(
        state_fixture.edition().initialisation_ticket(request).await.unwrap().is_none(),
        "a restart preserves values"
    );
}

#[tokio::test]
async fn rule_8_a_reader_waits_until_an_initial_value_is_durable() {
    let fixture =
        StateFixture::new(test_plan(vec![plan_cell("n", CellScope::Service, true)], &[(0, &[0])])).await;
    let (edition, none) = (fixture.edition(), HeldLocks::empty());
    let ticket = edition
        .initialisation_ticket(state_request(0, "/data", &none, "shop.sjs:1:1"))
        .await
        .unwrap()
        .unwrap();
    drop(ticket.commit(1, b"[[0,[],7]]").unwrap());
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!(7))]);
}

#[tokio::test]
async fn rule_8_a_failed_initialiser_is_retried() {
    let fixture =
        StateFixture::new(test_plan(vec![plan_cell("n", CellScope::Service, true)], &[(0, &[0])])).await;
    let (edition, none) = (fixture.edition(), HeldLocks::empty());
    drop(
        edition
            .initialisation_ticket(state_request(0, "/data", &none, "shop.sjs:1:1"))
            .await
            .unwrap()
            .unwrap(),
    );
    assert!(
        edition
            .initialisation_ticket(state_request(0, "/data", &none, "shop.sjs:1:1"))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn an_invalid_change_set_is_refused_without_affecting_the_next_run() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "[1]").await;
    for (changes, part) in
        [("[[0,[7],1]]", "hole"), ("[[1,[],1]]", "slot 1"), ("[[0,[", "not JSON"), ("{}", "edit 0")]
    {
        let ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
        let refused = ticket.commit(1, changes.as_bytes()).unwrap_err();
        assert_eq!(refused.code(), "state-changes-invalid");
        assert!(
            refused.to_string().contains(part) && refused.to_string().contains("shop.sjs:2:2"),
            "{refused}"
        );
    }
    assert_eq!(fixture.read_values(0, "/data").await, [Some(json!([1]))]);
}

#[tokio::test]
async fn an_append_sends_only_the_appended_element_to_store_and_workers() {
    let fixture = StateFixture::new(counter_plan()).await;
    let many: Vec<u32> = (0..10_000).collect();
    fixture.set_value(0, "/data", &json!(many).to_string()).await;
    let mut replicas = [WorkerReplica::new(1), WorkerReplica::new(2)];
    for replica in &mut replicas {
        replica.read_values(&mut read_ticket(&fixture.edition(), 0, "/data").await.unwrap());
    }
    let ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    ticket.commit(7, b"[[0,[10000],1]]").unwrap().wait().await.unwrap();
    for replica in &mut replicas {
        let mut ticket = read_ticket(&fixture.edition(), 0, "/data").await.unwrap();
        let frames = ticket.collect_frames(replica.worker);
        let [crate::state::PrecedingFrame::Changes { changes, .. }] = &frames[..] else {
            panic!("{frames:?}")
        };
        assert_eq!(changes[..], ["[[0,[10000],1]]"]);
        assert!(ticket.collect_frames(replica.worker).is_empty(), "nothing is sent twice");
    }
    let log = fixture.states.0.store.load("Shop/shared/n").await.unwrap().unwrap();
    assert_eq!(log.changes.last().map(|(_, change)| &change[..]), Some(&b"[[0,[10000],1]]"[..]));
}

#[tokio::test]
async fn many_changes_are_compacted_without_loss() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "[]").await;
    let mut durable = None;
    for number in 0..3000_u32 {
        let ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
        let text = format!("[[0,[{number}],\"{}\"]]", "x".repeat(40));
        durable = Some(ticket.commit(1, text.as_bytes()).unwrap());
    }
    durable.unwrap().wait().await.unwrap();
    let value = fixture.read_values(0, "/data").await;
    assert_eq!(value[0].as_ref().unwrap().as_array().unwrap().len(), 3000);
    let compacted = async {
        while fixture.states.0.store.load("Shop/shared/n").await.unwrap().unwrap().changes.len() >= 3000 {
            tokio::task::yield_now().await;
        }
    };
    testkit::with_timeout("a compaction in the store", compacted).await;
    let state_fixture = fixture.restart(counter_plan()).await;
    assert_eq!(state_fixture.read_values(0, "/data").await, value);
}

#[tokio::test]
async fn hot_reload_preserves_values_by_key_even_with_new_groups() {
    let apart = |second: &str| -> StatePlan {
        let cells =
            vec![plan_cell("a", CellScope::Service, false), plan_cell(second, CellScope::Service, false)];
        test_plan(cells, &[(0, &[0]), (0, &[1])])
    };
    let fixture = StateFixture::new(apart("b")).await;
    fixture.set_value(0, "/data", "1").await;
    fixture.set_value(1, "/data", "2").await;
    let old = fixture.edition();
    let running = write_ticket(&old, 1, "/data").await.unwrap();
    let cells = vec![plan_cell("b", CellScope::Service, false), plan_cell("a", CellScope::Service, false)];
    let new = fixture.service.reload(test_plan(cells, &[(0, &[0, 1])]));
    let waiting = tokio::spawn({
        let new = new.clone();
        async move {
            let mut ticket = write_ticket(&new, 0, "/data").await.unwrap();
            let values = WorkerReplica::new(1).begin_write(&mut ticket);
            ticket.commit(1, b"[[0,[],30],[1,[],10]]").unwrap().wait().await.unwrap();
            values
        }
    });
    tokio::task::yield_now().await;
    running.commit(1, b"[[0,[],3]]").unwrap().wait().await.unwrap();
    assert_eq!(
        waiting.await.unwrap(),
        [Some(json!(3)), Some(json!(1))],
        "the new program waits for the old one's writer"
    );
    let mut ticket = read_ticket(&old, 0, "/data").await.unwrap();
    assert_eq!(
        WorkerReplica::new(2).read_values(&mut ticket),
        [Some(json!(10))],
        "runs of the old program see what the new one wrote"
    );
    drop((old, new, ticket));
    // A removed cell has its value again once a program contains its key.
    let _ = fixture.service.reload(apart("c"));
    assert_eq!(fixture.read_values(1, "/data").await, [None]);
    let _ = fixture.service.reload(apart("b"));
    assert_eq!(fixture.read_values(1, "/data").await, [Some(json!(30))]);
}

#[tokio::test]
async fn a_new_group_does_not_depend_on_retired_groups_at_other_paths() {
    let cells = || {
        vec![
            plan_cell("/data a", CellScope::Resource(0), false),
            plan_cell("/data b", CellScope::Resource(0), false),
        ]
    };
    let fixture = StateFixture::new(test_plan(cells(), &[(0, &[0]), (0, &[1])])).await;
    read_ticket(&fixture.edition(), 1, "/0").await.unwrap();
    let home = Arc::clone(&fixture.edition().service_groups);
    let retired = home.groups().pop().unwrap();
    let _new = fixture.service.reload(test_plan(cells(), &[(0, &[0, 1])]));
    let (sender, found) = mpsc::channel();
    let locked = retired.lock();
    let finding = std::thread::spawn({
        let home = Arc::clone(&home);
        move || sender.send(home.get_or_create_group("/data b", "/1").map(|group| group.predecessors().len()))
    });
    // The time only matters if it waits for the lock.
    let before = found.recv_timeout(Duration::from_secs(60));
    drop(locked);
    assert_eq!(before, Ok(Some(0)));
    finding.join().unwrap().unwrap();
    assert_eq!(
        home.get_or_create_group("/data b", "/0").map(|group| group.predecessors().len()),
        Some(1),
        "at the same path"
    );
}

#[tokio::test]
async fn a_retired_group_is_dropped_once_its_successor_has_replaced_it() {
    let cells = || {
        vec![
            plan_cell("/data a", CellScope::Resource(0), false),
            plan_cell("/data b", CellScope::Resource(0), false),
        ]
    };
    let fixture = StateFixture::new(test_plan(cells(), &[(0, &[0]), (0, &[1])])).await;
    read_ticket(&fixture.edition(), 1, "/0").await.unwrap();
    let retired = Arc::downgrade(&fixture.edition().service_groups.groups().pop().unwrap());
    let new = fixture.service.reload(test_plan(cells(), &[(0, &[0, 1])]));
    read_ticket(&new, 0, "/0").await.unwrap();
    assert!(retired.upgrade().is_none());
}

#[tokio::test]
async fn a_worker_is_not_sent_its_own_changes() {
    let fixture = StateFixture::new(counter_plan()).await;
    fixture.set_value(0, "/data", "[]").await;
    let mut ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    ticket.collect_frames(1);
    let group = fixture.edition().service_groups.groups().pop().unwrap();
    let before = group.lock().finished;
    let (runtime, is_visible) = (tokio::runtime::Handle::current(), Arc::new(AtomicBool::new(false)));
    let (mut threads, mut is_early) = (Vec::new(), false);
    // The commit can't record the copy of its worker as long as this holds the workers.
    fixture.states.0.workers.collect_frames(2, |_, _| {
        threads.push(std::thread::spawn(move || {
            let _entered = runtime.enter();
            drop(ticket.commit(1, b"[[0,[0],1]]").unwrap());
        }));
        let seen = Arc::clone(&is_visible);
        threads.push(std::thread::spawn(move || {
            while group.lock().finished == before {
                std::thread::yield_now();
            }
            seen.store(true, Ordering::Relaxed);
        }));
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        is_early = is_visible.load(Ordering::Relaxed);
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!is_early, "a run in the same worker could get the changes a second time");
    let mut next = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    assert!(next.collect_frames(1).is_empty());
}

#[tokio::test]
async fn rule_7_holds_between_an_old_program_and_its_successor() {
    let cells = || vec![plan_cell("a", CellScope::Service, false), plan_cell("b", CellScope::Service, false)];
    let fixture = StateFixture::new(test_plan(cells(), &[(0, &[0]), (0, &[1])])).await;
    let ticket = write_ticket(&fixture.edition(), 0, "/data").await.unwrap();
    let new = fixture.service.reload(test_plan(cells(), &[(0, &[0, 1])]));
    let refused =
        new.write_ticket(state_request(0, "/data", &ticket.held_locks(), "shop.sjs:5:5")).await.unwrap_err();
    assert_eq!(refused.code(), "state-self-call");
}

#[tokio::test]
async fn a_service_cannot_be_deployed_twice() {
    let fixture = StateFixture::new(counter_plan()).await;
    let twice =
        fixture.states.open_service(counter_plan(), super::StateSettings::default()).await.unwrap_err();
    assert_eq!(twice.code(), "state-service-twice");
}
