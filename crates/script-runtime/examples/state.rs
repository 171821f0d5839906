//! Measures the cost of state: `cargo run --release -p script-runtime --example state`.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::path::Path;
use std::time::{Duration, Instant};

use offload::{OffloadConfig, OffloadPool};
use script_runtime::state::{
    CellScope, HeldLocks, PlanCell, PlanHandler, PlanResource, ResourceDeclaration, ServiceState, StatePlan,
    StateRegistry, StateRequest, StateSettings, StateView,
};
use store::CommitDurability;

type ExampleOutcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const HANDLERS: usize = 3;

/// A counter, two lists and a nested resource.
fn plan() -> StatePlan {
    let cell = |key: &str| PlanCell {
        name: key.to_owned(),
        key: key.into(),
        scope: CellScope::Service,
        eager: false,
    };
    let resource = |key: &str, is_dynamic: bool| PlanResource {
        key: key.into(),
        path: (!is_dynamic).then(|| key.into()),
        is_dynamic,
        cells: Vec::new(),
    };
    let mut cells = vec![cell("counter"), cell("short"), cell("long")];
    cells.push(PlanCell { scope: CellScope::Resource(1), ..cell("/made total") });
    StatePlan {
        service: "Shop".to_owned(),
        groups: (0..cells.len()).map(|cell| vec![cell]).collect(),
        handlers: (0..=HANDLERS)
            .map(|cell| PlanHandler { resource: cell / HANDLERS, group: Some(cell), cells: vec![cell] })
            .collect(),
        resources: vec![resource("/data", false), PlanResource { cells: vec![3], ..resource("/made", true) }],
        cells,
    }
}

fn state_request(handler: usize, locks: &HeldLocks) -> StateRequest<'_> {
    StateRequest { handler, path: "/data", held_locks: locks, position: "shop.sjs:1:1" }
}

async fn open_state(
    folder: &Path,
    durability: CommitDurability,
) -> ExampleOutcome<(StateRegistry, ServiceState)> {
    let offload = OffloadPool::start(OffloadConfig::default())?;
    let states = StateRegistry::open(folder, durability, offload)?;
    let settings = StateSettings { instances: 200_000, ..StateSettings::default() };
    let service = states.open_service(plan(), settings).await?;
    Ok((states, service))
}

async fn commit_changes(edition: &StateView, handler: usize, changes: &str) -> ExampleOutcome<()> {
    let mut ticket = edition.write_ticket(state_request(handler, &HeldLocks::empty())).await?;
    let _ = ticket.collect_frames(1);
    ticket.commit(1, changes.as_bytes())?.wait().await?;
    Ok(())
}

/// Measures the rate of increments of one counter by concurrent clients.
async fn measure_increments(edition: &StateView, clients: usize, time: Duration) -> ExampleOutcome<f64> {
    let began = Instant::now();
    let clients = (0..clients).map(|client| {
        let edition = edition.clone();
        tokio::spawn(async move {
            let mut count = 0_u32;
            while began.elapsed() < time {
                commit_changes(&edition, 0, &format!("[[0,[],[{client},{count}]]]")).await?;
                count += 1;
            }
            ExampleOutcome::Ok(count)
        })
    });
    let mut count = 0;
    for client in clients.collect::<Vec<_>>() {
        count += client.await??;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

/// Measures the time of an append to a list, from its change set to the disk.
async fn measure_appends(edition: &StateView, handler: usize, long: usize) -> ExampleOutcome<Duration> {
    const COUNT: u32 = 5000;
    let items = vec!["\"https://example.org/page\""; long].join(",");
    commit_changes(edition, handler, &format!("[[0,[],[{items}]]]")).await?;
    let began = Instant::now();
    for number in 0..COUNT as usize {
        commit_changes(edition, handler, &format!("[[0,[{}],\"https://example.org/page\"]]", long + number))
            .await?;
    }
    Ok(began.elapsed() / COUNT)
}

/// Returns the CPU time of all threads so far.
fn cpu_time() -> ExampleOutcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks: u64 =
        behind.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn resident_memory() -> ExampleOutcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}

async fn measure_instances(folder: &Path, count: usize) -> ExampleOutcome<()> {
    let (states, service) = open_state(folder, CommitDurability::Process).await?;
    let began = Instant::now();
    let tasks = (0..64_usize).map(|first| {
        let edition = service.edition();
        tokio::spawn(async move {
            for number in (first..count).step_by(64) {
                let path = format!("/made/{number}");
                let captures = format!("{{\"id\":{number}}}").into();
                let initials = r#"{"/made total":0}"#.into();
                let declaration =
                    ResourceDeclaration { resource: 1, path: &path, captures, initials, after_commit: None };
                edition.declare(declaration).await?;
            }
            ExampleOutcome::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    println!("{count} dynamic resources made in {:.2?}", began.elapsed());
    drop((states, service));
    let (before, began, cpu_before) = (resident_memory()?, Instant::now(), cpu_time()?);
    let (_states, service) = open_state(folder, CommitDurability::Process).await?;
    let (took, cpu) = (began.elapsed(), cpu_time()? - cpu_before);
    let bytes = resident_memory()?.saturating_sub(before) / count;
    assert!(service.edition().find_instance("/made/7").await?.is_some());
    println!(
        "a start with {count} dynamic resources takes {took:.2?}, {cpu:.2?} of it CPU, and about {bytes} bytes of memory for each"
    );
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExampleOutcome<()> {
    let folder = tempfile::tempdir()?;
    for (durability, name) in [(CommitDurability::Process, "process"), (CommitDurability::Machine, "machine")]
    {
        let (_states, service) = open_state(&folder.path().join(name), durability).await?;
        for clients in [1, 16, 64] {
            let rate = measure_increments(&service.edition(), clients, Duration::from_secs(2)).await?;
            println!(
                "{name}: {rate:.0} committed increments a second of one counter, from {clients} clients"
            );
        }
    }
    let (_states, service) = open_state(&folder.path().join("lists"), CommitDurability::Process).await?;
    let short = measure_appends(&service.edition(), 1, 100).await?;
    let long = measure_appends(&service.edition(), 2, 100_000).await?;
    let ratio = long.as_secs_f64() / short.as_secs_f64();
    println!(
        "an append to a list of 100 takes {short:.1?}, to one of 100,000 {long:.1?}: {ratio:.2} times as long"
    );
    measure_instances(&folder.path().join("made"), 100_000).await
}
