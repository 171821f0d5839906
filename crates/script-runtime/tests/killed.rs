//! A gateway that is killed at any moment loses no acknowledged write, and shows no uncommitted one.
//!
//! The test executes itself as the process to be killed. That process prints its acknowledged writes; the
//! test kills it after some number of lines, and inspects the state that the next process finds.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this is a test, and its child process reports on its output"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use offload::{OffloadConfig, OffloadPool};
use script_runtime::state::{
    CellScope, HeldLocks, PlanCell, PlanHandler, PlanResource, PrecedingFrame, ResourceDeclaration,
    ServiceState, StatePlan, StateRegistry, StateRequest, StateSettings, StateView,
};
use store::CommitDurability;

/// The folder of the process to be killed, and the number of the round.
const FOLDER_VARIABLE: &str = "ORFA_TEST_KILLED_IN";
const ROUND_VARIABLE: &str = "ORFA_TEST_ROUND";
const WRITERS: usize = 4;

fn plan() -> StatePlan {
    let cell = |key: &str, scope| PlanCell { name: key.to_owned(), key: key.into(), scope, eager: true };
    let resource = |key: &str, is_dynamic: bool| PlanResource {
        key: key.into(),
        path: (!is_dynamic).then(|| key.into()),
        is_dynamic,
        cells: Vec::new(),
    };
    StatePlan {
        service: "Shop".to_owned(),
        cells: vec![cell("done", CellScope::Service), cell("last", CellScope::Service)],
        groups: vec![vec![0, 1]],
        resources: vec![resource("/data", false), resource("/made", true)],
        handlers: vec![PlanHandler { resource: 0, group: Some(0), cells: vec![0, 1] }],
    }
}

async fn open_service(folder: &Path) -> (StateRegistry, ServiceState) {
    let offload = OffloadPool::start(OffloadConfig::default()).unwrap();
    let states = StateRegistry::open(folder, CommitDurability::Process, offload).unwrap();
    let service = states.open_service(plan(), StateSettings::default()).await.unwrap();
    let ticket = service.edition().initialisation_ticket(state_request(&HeldLocks::empty())).await.unwrap();
    if let Some(ticket) = ticket {
        ticket.commit(0, b"[[0,[],{}],[1,[],\"\"]]").unwrap().wait().await.unwrap();
    }
    (states, service)
}

fn state_request(locks: &HeldLocks) -> StateRequest<'_> {
    StateRequest { handler: 0, path: "/data", held_locks: locks, position: "shop.sjs:1:1" }
}

/// Sets a member, and its name in the other cell; every fifth time declares a resource of that name.
async fn write_repeatedly(edition: StateView, writer: usize, round: &str) {
    for number in 0.. {
        let name = format!("{round}-{writer}-{number}");
        let ticket = edition.write_ticket(state_request(&HeldLocks::empty())).await.unwrap();
        let changes = format!("[[0,[\"{name}\"],1],[1,[],\"{name}\"]]");
        let durable = ticket.commit(0, changes.as_bytes()).unwrap();
        durable.wait().await.unwrap();
        println!("done {name}");
        if number % 5 == 0 {
            let path = format!("/made/{name}");
            let after = Some(&durable);
            let (captures, initials) = (format!("\"{name}\"").into(), "".into());
            let declaration =
                ResourceDeclaration { resource: 1, path: &path, captures, initials, after_commit: after };
            edition.declare(declaration).await.unwrap();
            println!("made {path}");
        }
    }
}

/// Returns the two cells, as sent to a new worker.
async fn read_values(edition: &StateView) -> (serde_json::Value, serde_json::Value) {
    let mut ticket = edition.read_ticket(state_request(&HeldLocks::empty())).await.unwrap();
    let frames = ticket.collect_frames(1);
    let value = |cell: &u32| {
        let whole = frames.iter().find_map(|frame| match frame {
            PrecedingFrame::FullValue { cell: known, value, .. } if known == cell => Some(value),
            _ => None,
        });
        serde_json::from_slice(whole.unwrap()).unwrap()
    };
    assert_eq!(frames.len(), 2, "{frames:?}");
    (value(&ticket.cells()[0]), value(&ticket.cells()[1]))
}

#[test]
fn a_killed_gateway_loses_no_acknowledged_write_and_shows_no_uncommitted_one() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Ok(folder) = std::env::var(FOLDER_VARIABLE) {
        let round = std::env::var(ROUND_VARIABLE).unwrap();
        runtime.block_on(async {
            let (_states, service) = open_service(Path::new(&folder)).await;
            let writers = (0..WRITERS).map(|writer| {
                let (edition, round) = (service.edition(), round.clone());
                tokio::spawn(async move { write_repeatedly(edition, writer, &round).await })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.unwrap();
            }
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut done, mut made) = (BTreeSet::new(), BTreeSet::new());
    let mut seen = 0;
    for round in 0..20_usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "a_killed_gateway_loses_no_acknowledged_write_and_shows_no_uncommitted_one",
            ])
            .envs([
                (FOLDER_VARIABLE, folder.path().as_os_str()),
                (ROUND_VARIABLE, round.to_string().as_ref()),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut take = |line: Option<Result<String, std::io::Error>>| {
            let line = line.and_then(Result::ok)?;
            // The harness and the writers share the output, so a line may have a prefix.
            if let Some((_, name)) = line.split_once("done ") {
                done.insert(name.to_owned());
            } else if let Some((_, path)) = line.split_once("made ") {
                made.insert(path.to_owned());
            }
            Some(())
        };
        for _ in 0..3 + round * 17 % 120 {
            take(lines.next());
        }
        child.kill().unwrap();
        // Lines that were printed before the kill count as acknowledged.
        while take(lines.next()).is_some() {}
        child.wait().unwrap();
        runtime.block_on(async {
            let (_states, service) = open_service(folder.path()).await;
            let edition = service.edition();
            let (members, last) = read_values(&edition).await;
            let members: BTreeSet<String> = members.as_object().unwrap().keys().cloned().collect();
            assert!(done.is_subset(&members), "lost: {:?}", done.difference(&members).collect::<Vec<_>>());
            let extra = members.difference(&done).count();
            assert!(extra <= WRITERS * (round + 1), "{extra} uncommitted members");
            assert!(
                members.contains(last.as_str().unwrap_or_default()),
                "the two cells have the same version: {last}"
            );
            for path in &made {
                assert!(edition.find_instance(path).await.unwrap().is_some(), "{path} is lost");
            }
            let version = edition.read_ticket(state_request(&HeldLocks::empty())).await.unwrap().version();
            assert!(version > seen, "the version decreased from {seen} to {version}");
            seen = version;
        });
    }
    assert!(done.len() > 100);
}
