//! The services and methods that programs may use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use diagnostics::Diagnostic;
use http::Method;
use services::{ServiceSet, UpstreamService};

use super::trust::KeyConfig;
use crate::config::QueryConfig;

/// The services and methods that a route's programs may use.
pub(crate) struct CallPermissions {
    pub(crate) services: HashMap<String, Arc<UpstreamService>>,
    /// The client for those services.
    pub(crate) all_services: ServiceSet,
    pub(crate) methods: Vec<Method>,
    /// The services' names, separated by commas, in the format of the JavaScript environment.
    pub(crate) service_names: String,
}

impl CallPermissions {
    pub(crate) fn new(
        services: HashMap<String, Arc<UpstreamService>>,
        all_services: ServiceSet,
        methods: Vec<Method>,
    ) -> Self {
        let sorted: BTreeMap<_, _> = services.iter().collect();
        let service_names = sorted.values().map(|service| &**service.name()).collect::<Vec<_>>().join(",");
        Self { services, all_services, methods, service_names }
    }

    /// Returns the part of this access that programs signed by `key` have.
    pub(crate) fn restricted_to(&self, key: &KeyConfig) -> Self {
        let among = |names: &[String], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let service = |name: &str| key.services.as_ref().is_none_or(|names| among(names, name));
        let method =
            |name: &str| key.methods.as_ref().is_none_or(|names| names.iter().any(|known| known == name));
        let services = self.services.iter().filter(|(name, _)| service(name));
        let methods = self.methods.iter().filter(|name| method(name.as_str()));
        let services = services.map(|(name, it)| (name.clone(), it.clone())).collect();
        Self::new(services, self.all_services.clone(), methods.cloned().collect())
    }

    /// Returns the permissions of a route's config, and adds its mistakes to `problems`.
    pub(crate) fn from_config(
        config: &QueryConfig,
        services: &ServiceSet,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut known = HashMap::new();
        for (index, name) in config.services.iter().enumerate() {
            match services.get(name) {
                Some(service) => drop(known.insert(name.to_ascii_lowercase(), service.clone())),
                None => {
                    let message = format!("there is no service `{name}`");
                    problems.push(Diagnostic::new(
                        format!("/services/{index}"),
                        message,
                        "name it under `services:` first",
                    ));
                }
            }
        }
        Self::new(known, services.clone(), parse_methods(config, problems))
    }
}

fn parse_methods(config: &QueryConfig, problems: &mut Vec<Diagnostic>) -> Vec<Method> {
    let mut methods = Vec::new();
    for (index, name) in config.methods.iter().enumerate() {
        let method = Method::from_bytes(name.as_bytes()).ok();
        let upper = name.bytes().all(|byte| byte.is_ascii_uppercase());
        match method.filter(|method| upper && *method != Method::CONNECT && *method != Method::TRACE) {
            Some(method) => methods.push(method),
            None => {
                let message = format!("`{name}` is not a method that programs may use");
                problems.push(Diagnostic::new(
                    format!("/methods/{index}"),
                    message,
                    "write GET, POST or another HTTP method",
                ));
            }
        }
    }
    methods
}

#[cfg(test)]
impl CallPermissions {
    /// Returns permissions to call no service.
    pub(crate) fn none() -> Self {
        let services = ServiceSet::new(&BTreeMap::new()).unwrap();
        Self::new(HashMap::new(), services, Vec::new())
    }
}
