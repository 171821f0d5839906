//! Measures commits per second and their cost: `cargo run --release -p store --example commits [FOLDER]`.
//!
//! Clients append small changes to one key, as requests to one cell do. Each client submits its change after
//! the previous one without waiting for that result, and continues when its own change is durable. The last
//! lines compare the cost of an append to large and small states.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use store::{BatchPipeline, CommitDurability, Store, StoreError, WriteBatch};
use tokio::sync::Mutex;

const RUN_TIME: Duration = Duration::from_secs(3);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the example prints its results")]
async fn main() -> Result<(), StoreError> {
    let given = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    // A separate folder, because it is removed before each measurement.
    let folder = given.join("orfa-commits");
    for durability in [CommitDurability::Process, CommitDurability::Machine] {
        for clients in [1, 8, 64] {
            let (commits, cpu) = run(&folder, durability, clients).await?;
            let a_second = commits as f64 / RUN_TIME.as_secs_f64();
            let each = cpu.as_secs_f64() * 1e6 / commits as f64;
            println!(
                "{durability:?}, {clients} clients: {a_second:.0} commits a second, {each:.1} us of CPU each"
            );
        }
    }
    for size in [1 << 10, 1 << 20, 16 << 20] {
        let each = measure_append(&folder, size).await?;
        println!("an append to {size} bytes: {:.1} us of CPU", each.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// The pipeline of a key, and its version.
type ExampleCell = Mutex<(BatchPipeline, u64)>;

/// Returns the number of commits and their CPU time.
async fn run(
    folder: &Path,
    durability: CommitDurability,
    clients: usize,
) -> Result<(u64, Duration), StoreError> {
    let store = create_store(folder, durability)?;
    let version = store.commit(WriteBatch::new().create("counter", "0")).await?[0].version;
    let cell: Arc<ExampleCell> = Arc::new(Mutex::new((store.pipeline(), version)));
    let (began, cpu) = (Instant::now(), cpu_time());
    let clients: Vec<_> =
        (0..clients).map(|_| tokio::spawn(run_client(store.clone(), Arc::clone(&cell), began))).collect();
    let mut commits = 0;
    for client in clients {
        commits += client.await.map_err(|_| StoreError::Stopped)??;
    }
    Ok((commits, self::cpu_time() - cpu))
}

async fn run_client(store: Store, cell: Arc<ExampleCell>, began: Instant) -> Result<u64, StoreError> {
    let mut commits = 0;
    while began.elapsed() < RUN_TIME {
        let mut turn = cell.lock().await;
        let batch = WriteBatch::new().append("counter", turn.1, format!("+1 {}", turn.1));
        let durable = turn.0.submit(batch).await;
        turn.1 += 1;
        drop(turn);
        let result = durable.await?[0];
        if result.needs_compaction {
            store
                .commit(WriteBatch::new().compact("counter", result.version, result.version.to_string()))
                .await?;
        }
        commits += 1;
    }
    Ok(commits)
}

/// Returns the CPU time of an append to a key of this size, including the compactions that it causes.
async fn measure_append(folder: &Path, size: usize) -> Result<Duration, StoreError> {
    let store = create_store(folder, CommitDurability::Process)?;
    let mut version = store.commit(WriteBatch::new().create("list", vec![b'x'; size])).await?[0].version;
    let cpu = cpu_time();
    let count = 20_000;
    for _ in 0..count {
        let result = store
            .commit(WriteBatch::new().append("list", version, "an entry that is new in the list"))
            .await?[0];
        version = result.version;
        if result.needs_compaction {
            store.commit(WriteBatch::new().compact("list", version, vec![b'x'; size])).await?;
        }
    }
    Ok((self::cpu_time() - cpu) / count)
}

fn create_store(folder: &Path, durability: CommitDurability) -> Result<Store, StoreError> {
    let _ = std::fs::remove_dir_all(folder);
    Store::open(&folder.join("state.db"), durability)
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
