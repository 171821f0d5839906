//! The state of an S service across changes of its program.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::StateSettings;
use super::edition::StateView;
use super::home::ServiceGroups;
use super::plan::StatePlan;

/// The state of an S service. Clones share it.
#[derive(Clone, Debug)]
pub struct ServiceState(Arc<DeployedEdition>);

#[derive(Debug)]
struct DeployedEdition {
    home: Arc<ServiceGroups>,
    editions: Mutex<EditionHistory>,
}

#[derive(Debug)]
struct EditionHistory {
    now: Arc<StatePlan>,
    /// Former programs that may still have runs.
    former: Vec<Weak<StatePlan>>,
}

impl Drop for DeployedEdition {
    fn drop(&mut self) {
        self.home.clear();
    }
}

impl ServiceState {
    pub(crate) fn new(home: Arc<ServiceGroups>, plan: StatePlan) -> Self {
        let now = Arc::new(plan);
        home.arrange(&[Arc::clone(&now)]);
        Self(Arc::new(DeployedEdition {
            home,
            editions: Mutex::new(EditionHistory { now, former: Vec::new() }),
        }))
    }

    /// Returns the view of the active program.
    #[must_use]
    pub fn edition(&self) -> StateView {
        let editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        StateView { home: Arc::clone(&self.0.home), plan: Arc::clone(&editions.now) }
    }

    /// Replaces the settings. Existing resources keep the expiry time that was set on their creation.
    pub fn set(&self, settings: StateSettings) {
        self.0.home.set(settings);
    }

    /// Activates a changed program. Values are preserved by the keys of their cells; those of removed cells
    /// remain in the store. Runs of former programs continue, and writers of both programs exclude each
    /// other.
    #[must_use]
    pub fn reload(&self, plan: StatePlan) -> StateView {
        let mut editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut editions.now, Arc::new(plan));
        editions.former.push(Arc::downgrade(&former));
        drop(former);
        editions.former.retain(|plan| plan.strong_count() > 0);
        let mut plans: Vec<Arc<StatePlan>> = editions.former.iter().filter_map(Weak::upgrade).collect();
        plans.push(Arc::clone(&editions.now));
        self.0.home.arrange(&plans);
        StateView { home: Arc::clone(&self.0.home), plan: Arc::clone(&editions.now) }
    }
}
