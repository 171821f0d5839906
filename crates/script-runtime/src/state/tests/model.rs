//! Random interleavings of writers, readers, failures and restarts, compared with a model: a list of
//! versions.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::replica::{WorkerReplica, apply_edit};
use super::values::{EditParameters, wish};
use super::{StateFixture, plan_cell, read_ticket, test_plan, write_ticket};
use crate::state::{CellScope, DurableCommit, StatePlan};

/// A step of an interleaving.
#[derive(Clone, Debug)]
enum InterleavingStep {
    /// A run in a worker, with its writes and their slots.
    Write {
        worker: u8,
        wishes: Vec<(bool, EditParameters)>,
    },
    /// A run that throws at its end.
    Throw {
        worker: u8,
    },
    /// A run whose change set has an invalid last edit.
    Misfit {
        worker: u8,
        wishes: Vec<(bool, EditParameters)>,
    },
    Read {
        worker: u8,
    },
    /// A reader that gets its ticket now and is sent a few steps later.
    Late {
        worker: u8,
    },
    /// Waits for all commits in progress.
    Wait,
    /// Another holder takes the lease: commits that are not durable fail.
    Steal,
    /// A worker is killed and replaced.
    Kill {
        worker: u8,
    },
    /// A minute without requests.
    Idle,
    Restart,
}

fn step() -> impl Strategy<Value = InterleavingStep> {
    let wishes = || prop::collection::vec((any::<bool>(), wish()), 0..4);
    let worker = || 0..3_u8;
    prop_oneof![
        8 => (worker(), wishes()).prop_map(|(worker, wishes)| InterleavingStep::Write { worker, wishes }),
        1 => worker().prop_map(|worker| InterleavingStep::Throw { worker }),
        1 => (worker(), wishes()).prop_map(|(worker, wishes)| InterleavingStep::Misfit { worker, wishes }),
        4 => worker().prop_map(|worker| InterleavingStep::Read { worker }),
        2 => worker().prop_map(|worker| InterleavingStep::Late { worker }),
        2 => Just(InterleavingStep::Wait),
        1 => Just(InterleavingStep::Steal),
        1 => worker().prop_map(|worker| InterleavingStep::Kill { worker }),
        1 => Just(InterleavingStep::Idle),
        1 => Just(InterleavingStep::Restart),
    ]
}

type ModelValues = Vec<Option<Value>>;

/// The system under test and the model.
struct SystemAndModel {
    /// `None` only during a restart.
    ground: Option<StateFixture>,
    replicas: HashMap<u8, WorkerReplica>,
    workers: u32,
    /// The values by version; those after the durable version may still be rolled back.
    versions: Vec<(u64, ModelValues)>,
    pending: Vec<(u64, DurableCommit)>,
    /// The last version that a reader saw.
    seen: u64,
    late: Vec<(u8, crate::state::ReadTicket)>,
}

/// Two cells of the service in one group.
fn two_cell_plan() -> StatePlan {
    test_plan(
        vec![plan_cell("a", CellScope::Service, false), plan_cell("b", CellScope::Service, false)],
        &[(0, &[0, 1])],
    )
}

impl SystemAndModel {
    async fn new() -> Self {
        let fixture = Some(StateFixture::new(two_cell_plan()).await);
        let versions = vec![(0, vec![None, None])];
        Self {
            ground: fixture,
            replicas: HashMap::new(),
            workers: 0,
            versions,
            pending: Vec::new(),
            seen: 0,
            late: Vec::new(),
        }
    }

    fn replica(&mut self, worker: u8) -> &mut WorkerReplica {
        let workers = &mut self.workers;
        self.replicas.entry(worker).or_insert_with(|| {
            *workers += 1;
            WorkerReplica::new(*workers)
        })
    }

    fn fixture(&self) -> &StateFixture {
        self.ground.as_ref().unwrap()
    }

    fn last_version(&self) -> &(u64, ModelValues) {
        self.versions.last().unwrap()
    }

    async fn apply_step(&mut self, step: InterleavingStep) {
        match step {
            InterleavingStep::Write { worker, wishes } => self.write(worker, wishes, true).await,
            InterleavingStep::Misfit { worker, wishes } => self.write(worker, wishes, false).await,
            InterleavingStep::Throw { worker } => {
                let mut ticket = write_ticket(&self.fixture().edition(), 0, "/data").await.unwrap();
                self.replica(worker).begin_write(&mut ticket);
            }
            InterleavingStep::Read { worker } => {
                let ticket = read_ticket(&self.fixture().edition(), 0, "/data").await.unwrap();
                self.read(worker, ticket);
            }
            InterleavingStep::Late { worker } => {
                let ticket = read_ticket(&self.fixture().edition(), 0, "/data").await.unwrap();
                self.late.push((worker, ticket));
                if self.late.len() > 2 {
                    let (worker, ticket) = self.late.remove(0);
                    self.read(worker, ticket);
                }
            }
            InterleavingStep::Wait => self.wait_for_commits().await,
            InterleavingStep::Steal => {
                self.fixture().invalidate_lease("Shop/shared/a").await;
                self.wait_for_commits().await;
            }
            InterleavingStep::Kill { worker } => {
                if let Some(replica) = self.replicas.remove(&worker) {
                    self.fixture().states.remove_worker(replica.worker);
                }
            }
            InterleavingStep::Idle => {
                self.wait_for_commits().await;
                for _ in 0..62 {
                    self.fixture().tick().await;
                }
                // After reloading, the version may be higher, since it is the sum over all cells.
                self.check_state().await;
            }
            InterleavingStep::Restart => self.restart().await,
        }
    }

    async fn write(&mut self, worker: u8, wishes: Vec<(bool, EditParameters)>, fits: bool) {
        let edition = self.fixture().edition();
        let mut ticket = write_ticket(&edition, 0, "/data").await.unwrap();
        if ticket.version() != self.last_version().0 {
            // A commit failed, and its writers get the error.
            self.wait_for_commits().await;
        }
        let mut values = self.replica(worker).begin_write(&mut ticket);
        assert_eq!(
            (ticket.version(), &values),
            (self.last_version().0, &self.last_version().1),
            "a writer builds on the finished version"
        );
        let mut changes = Vec::new();
        for (second, wish) in wishes {
            let slot = usize::from(second);
            let edit = wish.to_edit(slot, values[slot].as_ref());
            apply_edit(&mut values[slot], &edit);
            changes.push(edit);
        }
        if !fits {
            changes.push(json!([1, ["nowhere", "at all"], 1]));
        }
        let touched: Vec<usize> =
            (0..2).filter(|slot| changes.iter().any(|edit| edit[0] == json!(slot))).collect();
        let (cells, version) = (ticket.cells().to_vec(), ticket.version());
        let committed = ticket.commit(self.replica(worker).worker, json!(changes).to_string().as_bytes());
        assert_eq!(committed.is_ok(), fits, "{committed:?}");
        let Ok(durable) = committed else { return };
        if !touched.is_empty() {
            let touched_cells: Vec<u32> = touched.iter().map(|slot| cells[*slot]).collect();
            let touched_values: ModelValues = touched.iter().map(|slot| values[*slot].clone()).collect();
            self.replica(worker).record_write(&touched_cells, version + 1, &touched_values);
            self.versions.push((version + 1, values));
        }
        self.pending.push((self.last_version().0, durable));
    }

    fn read(&mut self, worker: u8, mut ticket: crate::state::ReadTicket) {
        let values = self.replica(worker).read_values(&mut ticket);
        let version = ticket.version();
        assert!(version >= self.seen, "a reader saw {} and then {version}", self.seen);
        let model = self.versions.iter().find(|(known, _)| *known == version);
        assert_eq!(Some(&values), model.map(|(_, values)| values), "version {version} was committed");
        self.seen = version;
    }

    /// Waits for all commits in progress. Failed commits must be the last ones, and must not have been read.
    async fn wait_for_commits(&mut self) {
        let mut failed = None;
        for (version, durable) in std::mem::take(&mut self.pending) {
            match durable.wait().await {
                Ok(()) => assert_eq!(failed, None, "no successful commit builds on a failed one"),
                Err(_) => failed = failed.or(Some(version)),
            }
        }
        if let Some(failed) = failed {
            assert!(self.seen < failed, "no failed commit was read");
            self.versions.retain(|(version, _)| *version < failed);
        }
    }

    async fn restart(&mut self) {
        self.wait_for_commits().await;
        self.late.clear();
        self.replicas.clear();
        self.ground = Some(self.ground.take().unwrap().restart(two_cell_plan()).await);
        self.check_state().await;
    }

    async fn check_state(&mut self) {
        let ticket = read_ticket(&self.fixture().edition(), 0, "/data").await.unwrap();
        let values = self.fixture().read_values(0, "/data").await;
        assert!(ticket.version() >= self.last_version().0, "versions don't decrease");
        assert_eq!(values, self.last_version().1, "acknowledged writes are preserved");
        self.versions = vec![(ticket.version(), values)];
        self.seen = ticket.version();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn runs_see_committed_versions_and_acknowledged_writes_survive(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = SystemAndModel::new().await;
            for step in steps {
                world.apply_step(step).await;
            }
            world.restart().await;
        });
    }
}
