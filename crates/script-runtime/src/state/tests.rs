//! Tests of the state: visibility, durability, and the copies in workers.

mod gateways;
mod instances;
mod model;
mod offloaded_work;
mod replica;
mod rules;
mod sizes;
mod values;

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;
use store::CommitDurability;
use tempfile::TempDir;

use super::{
    CellScope, DurableCommit, HeldLocks, PlanCell, PlanHandler, PlanResource, ReadTicket, ServiceState,
    StateError, StatePlan, StateRegistry, StateRequest, StateSettings, StateView, WriteTicket,
};
use crate::tests::fixture::offload_pool;
use replica::WorkerReplica;

/// Returns a cell of a plan: its key, its scope, and whether it is initialised before its first use.
pub(super) fn plan_cell(key: &str, scope: CellScope, eager: bool) -> PlanCell {
    let name = key.rsplit(' ').next().unwrap_or(key);
    PlanCell { name: name.to_owned(), key: key.into(), scope, eager }
}

/// Returns a plan with a literal resource `/data` and a nested one, `/made`; the cells of each handler form a
/// group.
pub(super) fn test_plan(cells: Vec<PlanCell>, handlers: &[(usize, &[usize])]) -> StatePlan {
    let groups = handlers.iter().map(|(_, cells)| cells.to_vec()).collect();
    let handlers = handlers.iter().enumerate().map(|(number, (resource, cells))| PlanHandler {
        resource: *resource,
        group: (!cells.is_empty()).then_some(number),
        cells: cells.to_vec(),
    });
    let own = |resource| {
        let is_own = |(_, cell): &(usize, &PlanCell)| cell.scope == CellScope::Resource(resource);
        cells.iter().enumerate().filter(is_own).map(|(number, _)| number).collect()
    };
    let resources = vec![
        PlanResource { key: "/data".into(), path: Some("/data".into()), is_dynamic: false, cells: own(0) },
        PlanResource { key: "/data POST > /made".into(), path: None, is_dynamic: true, cells: own(1) },
    ];
    StatePlan { service: "Shop".into(), handlers: handlers.collect(), resources, groups, cells }
}

/// Returns a plan with one counter of the service, written by handler 0.
pub(super) fn counter_plan() -> StatePlan {
    test_plan(vec![plan_cell("n", CellScope::Service, false)], &[(0, &[0])])
}

/// A folder and a gateway on it.
pub(super) struct StateFixture {
    pub(super) folder: Arc<TempDir>,
    pub(super) states: StateRegistry,
    pub(super) service: ServiceState,
}

impl StateFixture {
    pub(super) async fn new(plan: StatePlan) -> Self {
        Self::with_settings(Arc::new(tempfile::tempdir().unwrap()), plan, StateSettings::default()).await
    }

    pub(super) async fn with_settings(
        folder: Arc<TempDir>,
        plan: StatePlan,
        settings: StateSettings,
    ) -> Self {
        let states = StateRegistry::open(folder.path(), CommitDurability::Process, offload_pool()).unwrap();
        let service = states.open_service(plan, settings).await.unwrap();
        Self { folder, states, service }
    }

    /// Starts another gateway on the same folder, concurrently.
    pub(super) async fn second_gateway(&self, plan: StatePlan) -> Self {
        Self::with_settings(Arc::clone(&self.folder), plan, StateSettings::default()).await
    }

    /// Ends the gateway without a shutdown, and starts another.
    pub(super) async fn restart(self, plan: StatePlan) -> Self {
        let Self { folder, states, service } = self;
        drop((states, service));
        Self::with_settings(folder, plan, StateSettings::default()).await
    }

    pub(super) fn edition(&self) -> StateView {
        self.service.edition()
    }

    pub(super) async fn tick(&self) {
        self.states.tick(SystemTime::now()).await;
    }

    /// Returns the values that a handler would read now.
    pub(super) async fn read_values(&self, handler: usize, path: &str) -> Vec<Option<Value>> {
        let mut ticket = read_ticket(&self.edition(), handler, path).await.unwrap();
        self.states.remove_worker(u32::MAX);
        WorkerReplica::new(u32::MAX).read_values(&mut ticket)
    }

    /// Sets a handler's first cell, durably.
    pub(super) async fn set_value(&self, handler: usize, path: &str, value: &str) {
        let durable = set_value(&self.edition(), handler, path, value).await.unwrap();
        durable.wait().await.unwrap();
    }

    /// Invalidates the lease of this name by acquiring it again.
    pub(super) async fn invalidate_lease(&self, lease: &str) {
        let shared = &self.states.0;
        let holder = Arc::clone(shared.lease_owner.name());
        // If an ended gateway holds it, there is nothing to invalidate.
        let _ = shared.store.acquire_lease(lease, holder, std::time::Duration::from_secs(1)).await;
    }
}

pub(super) fn state_request<'a>(
    handler: usize,
    path: &'a str,
    locks: &'a HeldLocks,
    at: &'a str,
) -> StateRequest<'a> {
    StateRequest { handler, path, held_locks: locks, position: at }
}

pub(super) async fn read_ticket(
    edition: &StateView,
    handler: usize,
    path: &str,
) -> Result<ReadTicket, StateError> {
    edition.read_ticket(state_request(handler, path, &HeldLocks::empty(), "shop.sjs:1:1")).await
}

pub(super) async fn write_ticket(
    edition: &StateView,
    handler: usize,
    path: &str,
) -> Result<WriteTicket, StateError> {
    edition.write_ticket(state_request(handler, path, &HeldLocks::empty(), "shop.sjs:2:2")).await
}

pub(super) async fn set_value(
    edition: &StateView,
    handler: usize,
    path: &str,
    value: &str,
) -> Result<DurableCommit, StateError> {
    let ticket = write_ticket(edition, handler, path).await?;
    ticket.commit(0, format!("[[0,[],{value}]]").as_bytes())
}
