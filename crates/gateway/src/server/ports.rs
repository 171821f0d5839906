//! How each listening address is spoken to, by the name that the config gives it.
//!
//! This belongs to a config and is looked up for every connection, while the sockets outlive configs. An
//! address that a later config names no longer keeps its rules for as long as its socket is open.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use services::config::ConfigProblem;

use super::tls::Tls;
use crate::config::ListenConfig;
use crate::hosts::HostNames;

/// The rules of all addresses.
#[derive(Clone, Default)]
pub(crate) struct Ports(HashMap<String, Port>);

/// The rules of one address.
#[derive(Clone, Default)]
pub(crate) struct Port {
    pub(super) tls: Option<Arc<Tls>>,
    /// The hosts that it answers for; where there are none, for all.
    pub(super) hosts: Arc<HostNames>,
}

impl Ports {
    /// Of the config; relative paths in it start at this folder.
    ///
    /// # Errors
    /// Everything that is wrong with certificates, with pointers from the root of the config.
    pub(crate) fn new(
        listen: &ListenConfig,
        folder: &Path,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let mut ports = previous.cloned().unwrap_or_default();
        let mut problems = Vec::new();
        for (pointer, address, tls) in listen.each() {
            let hosts = Arc::new(HostNames::new(listen.hosts_at(address)));
            match tls.map(|tls| Tls::new(tls, folder)).transpose() {
                Ok(tls) => drop(ports.0.insert(address.to_owned(), Port { tls: tls.map(Arc::new), hosts })),
                Err(found) => problems.extend(found.into_iter().map(|problem| ConfigProblem {
                    pointer: format!("{pointer}/tls{}", problem.pointer),
                    ..problem
                })),
            }
        }
        if problems.is_empty() { Ok(ports) } else { Err(problems) }
    }

    /// The rules of an address; a socket without rules is not spoken on.
    pub(super) fn get(&self, name: &str) -> Option<&Port> {
        self.0.get(name)
    }

    /// Reads certificates again that have changed.
    pub(super) fn refresh(&self) {
        self.0.values().filter_map(|port| port.tls.as_ref()).for_each(|tls| tls.refresh());
    }
}
