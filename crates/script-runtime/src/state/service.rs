//! The state of an S service across changes of its program.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::StateSettings;
use super::edition::StateView;
use super::groups::service_groups::ServiceGroups;
use super::plan::StatePlan;

/// The state of an S service. Clones share it.
#[derive(Clone, Debug)]
pub struct ServiceState(Arc<DeployedEdition>);

#[derive(Debug)]
struct DeployedEdition {
    service_groups: Arc<ServiceGroups>,
    editions: Mutex<EditionHistory>,
}

#[derive(Debug)]
struct EditionHistory {
    active: Arc<StatePlan>,
    /// Former programs that may still have runs.
    former: Vec<Weak<StatePlan>>,
}

impl Drop for DeployedEdition {
    fn drop(&mut self) {
        self.service_groups.drop_groups();
    }
}

impl ServiceState {
    pub(crate) fn new(home: Arc<ServiceGroups>, plan: StatePlan) -> Self {
        let now = Arc::new(plan);
        home.activate_domains(&[Arc::clone(&now)]);
        Self(Arc::new(DeployedEdition {
            service_groups: home,
            editions: Mutex::new(EditionHistory { active: now, former: Vec::new() }),
        }))
    }

    /// Returns the view of the active program.
    #[must_use]
    pub fn edition(&self) -> StateView {
        let editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        StateView { service_groups: Arc::clone(&self.0.service_groups), plan: Arc::clone(&editions.active) }
    }

    /// Replaces the settings. Existing resources keep the expiry time that was set on their creation.
    pub fn set_settings(&self, settings: StateSettings) {
        self.0.service_groups.set_settings(settings);
    }

    /// Activates a changed program. Values are preserved by the keys of their cells; those of removed cells
    /// remain in the store. Runs of former programs continue, and writers of both programs exclude each
    /// other.
    #[must_use]
    pub fn reload(&self, plan: StatePlan) -> StateView {
        let mut editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut editions.active, Arc::new(plan));
        editions.former.push(Arc::downgrade(&former));
        drop(former);
        editions.former.retain(|plan| plan.strong_count() > 0);
        let mut plans: Vec<Arc<StatePlan>> = editions.former.iter().filter_map(Weak::upgrade).collect();
        plans.push(Arc::clone(&editions.active));
        self.0.service_groups.activate_domains(&plans);
        StateView { service_groups: Arc::clone(&self.0.service_groups), plan: Arc::clone(&editions.active) }
    }
}
