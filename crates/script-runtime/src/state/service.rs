//! The state of an S service across changes of its program.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Settings;
use super::edition::Edition;
use super::home::Home;
use super::plan::Plan;

/// The state of an S service. Clones share it.
#[derive(Clone, Debug)]
pub struct Service(Arc<Deployed>);

#[derive(Debug)]
struct Deployed {
    home: Arc<Home>,
    editions: Mutex<Editions>,
}

#[derive(Debug)]
struct Editions {
    now: Arc<Plan>,
    /// Former programs that may still have runs.
    former: Vec<Weak<Plan>>,
}

impl Drop for Deployed {
    fn drop(&mut self) {
        self.home.clear();
    }
}

impl Service {
    pub(crate) fn new(home: Arc<Home>, plan: Plan) -> Self {
        let now = Arc::new(plan);
        home.arrange(&[Arc::clone(&now)]);
        Self(Arc::new(Deployed { home, editions: Mutex::new(Editions { now, former: Vec::new() }) }))
    }

    /// Returns the view of the active program.
    #[must_use]
    pub fn edition(&self) -> Edition {
        let editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        Edition { home: Arc::clone(&self.0.home), plan: Arc::clone(&editions.now) }
    }

    /// Replaces the settings. Existing resources keep the expiry time that was set on their creation.
    pub fn set(&self, settings: Settings) {
        self.0.home.set(settings);
    }

    /// Activates a changed program. Values are preserved by the keys of their cells; those of removed cells
    /// remain in the store. Runs of former programs continue, and writers of both programs exclude each
    /// other.
    #[must_use]
    pub fn reload(&self, plan: Plan) -> Edition {
        let mut editions = self.0.editions.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut editions.now, Arc::new(plan));
        editions.former.push(Arc::downgrade(&former));
        drop(former);
        editions.former.retain(|plan| plan.strong_count() > 0);
        let mut plans: Vec<Arc<Plan>> = editions.former.iter().filter_map(Weak::upgrade).collect();
        plans.push(Arc::clone(&editions.now));
        self.0.home.arrange(&plans);
        Edition { home: Arc::clone(&self.0.home), plan: Arc::clone(&editions.now) }
    }
}
