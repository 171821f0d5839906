//! Plans that were made, by their documents: the oldest go when there are too many bytes of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use super::Plan;

pub(crate) struct Kept {
    most: usize,
    plans: RwLock<Plans>,
}

/// A plan, by its operation's name.
type Named = (Option<Box<str>>, Arc<Plan>);

#[derive(Default)]
struct Plans {
    /// By document, and then by the operation's name.
    known: HashMap<Arc<str>, Vec<Named>>,
    /// The documents, the oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, plans: RwLock::default() }
    }

    pub(crate) fn get(&self, text: &str, name: Option<&str>) -> Option<Arc<Plan>> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let known = plans.known.get(text)?;
        known.iter().find(|(known, _)| known.as_deref() == name).map(|(_, plan)| Arc::clone(plan))
    }

    pub(crate) fn keep(&self, text: &str, name: Option<&str>, plan: &Arc<Plan>) {
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        let entry = (name.map(Into::into), Arc::clone(plan));
        if let Some(known) = plans.known.get_mut(text) {
            if !known.iter().any(|(known, _)| known.as_deref() == name) {
                known.push(entry);
            }
            return;
        }
        plans.bytes += text.len();
        let text: Arc<str> = text.into();
        plans.order.push_back(Arc::clone(&text));
        plans.known.insert(text, vec![entry]);
        while plans.bytes > self.most
            && let Some(oldest) = plans.order.pop_front()
        {
            plans.bytes -= oldest.len();
            plans.known.remove(&oldest);
        }
    }
}
