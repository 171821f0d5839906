//! Schemas of GraphQL services that are fetched by introspection, from the activation of a config until they
//! answer.
//!
//! A fetched schema remains available to later configs, so that a reload while the service is down loses
//! nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use services::ServiceSet;

use crate::fetch::remote::introspect;

/// Schemas fetched by introspection, by service name and path.
#[derive(Debug, Default)]
pub struct RemoteSchemas(Mutex<BTreeMap<RemoteSchemaKey, Arc<str>>>);

/// A service's name, and its GraphQL path.
type RemoteSchemaKey = (Box<str>, Box<str>);

/// A GraphQL service whose schema is fetched by introspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IntrospectedService {
    /// The service's name.
    pub(crate) service: Box<str>,
    /// The path of its GraphQL endpoint.
    pub(crate) path: Box<str>,
    /// Whether it is a subgraph of Apollo Federation.
    pub(crate) is_federated: bool,
}

impl RemoteSchemas {
    /// Returns the schema of a service, if it has been fetched.
    pub(crate) fn get(&self, remote: &IntrospectedService) -> Option<Arc<str>> {
        let key = (remote.service.clone(), remote.path.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Fetches the schema of a service. Returns whether it differs from the previous one.
    ///
    /// # Errors
    /// A message that explains why the schema is unavailable.
    pub(crate) async fn fetch_schema(
        &self,
        services: &ServiceSet,
        remote: &IntrospectedService,
    ) -> Result<bool, String> {
        let asked = introspect(services, &remote.service, &remote.path, remote.is_federated).await;
        let text: Arc<str> = asked.map_err(|error| error.message)?.into();
        let key = (remote.service.clone(), remote.path.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.insert(key, Arc::clone(&text)).as_ref() != Some(&text))
    }
}
