//! Schemas of GraphQL services that are asked for them: when a config is put to work, and until they answer.
//!
//! What a service said stays known to the configs that follow, so that a reload while it is down takes nothing away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use services::Services;

use crate::remote::introspect;

/// What services said of themselves, by name and path.
#[derive(Debug, Default)]
pub struct Schemas(Mutex<BTreeMap<Key, Arc<str>>>);

/// A service's name, and where it answers.
type Key = (Box<str>, Box<str>);

/// A GraphQL service that has to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The service's name.
    pub(crate) service: Box<str>,
    /// Where it answers.
    pub(crate) path: Box<str>,
    /// Whether it is a subgraph of Apollo Federation.
    pub(crate) is_federated: bool,
}

impl Schemas {
    /// What a service said, if it did.
    pub(crate) fn get(&self, remote: &Remote) -> Option<Arc<str>> {
        let key = (remote.service.clone(), remote.path.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Asks a service; whether it said something else than before.
    ///
    /// # Errors
    /// Why there is no schema, in words.
    pub(crate) async fn ask(&self, services: &Services, remote: &Remote) -> Result<bool, String> {
        let asked = introspect(services, &remote.service, &remote.path, remote.is_federated).await;
        let text: Arc<str> = asked.map_err(|error| error.message)?.into();
        let key = (remote.service.clone(), remote.path.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.insert(key, Arc::clone(&text)).as_ref() != Some(&text))
    }
}
