//! The TLS and host rules of each listening address, by its name in the config.
//!
//! The rules belong to a config and are looked up for every connection, while the sockets outlive configs. An
//! address that a later config no longer contains keeps its rules as long as its socket is open.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use diagnostics::Diagnostic;

use super::tls::ListenerTls;
use crate::config::ListenConfig;
use crate::config::host_names::HostNames;

/// The rules of all addresses.
#[derive(Clone, Default)]
pub(crate) struct ListenerRulesByAddress(HashMap<String, ListenerRules>);

/// The rules of one address.
#[derive(Clone, Default)]
pub(crate) struct ListenerRules {
    pub(super) tls: Option<Arc<ListenerTls>>,
    /// The hosts that it serves. It serves all if there are none.
    pub(super) hosts: Arc<HostNames>,
}

impl ListenerRulesByAddress {
    /// Creates the rules from the config. Relative paths in it start at `folder`.
    ///
    /// # Errors
    /// Returns all errors in certificates, with pointers from the root of the config.
    pub(crate) fn new(
        listen: &ListenConfig,
        folder: &Path,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut ports = previous.cloned().unwrap_or_default();
        let mut problems = Vec::new();
        for (pointer, address, tls) in listen.addresses_with_tls() {
            let hosts = Arc::new(HostNames::new(listen.hosts_at(address)));
            match tls.map(|tls| ListenerTls::new(tls, folder)).transpose() {
                Ok(tls) => {
                    drop(ports.0.insert(address.to_owned(), ListenerRules { tls: tls.map(Arc::new), hosts }))
                }
                Err(diagnostics) => {
                    let base = format!("{pointer}/tls");
                    problems.extend(diagnostics.into_iter().map(|problem| problem.below(&base)));
                }
            }
        }
        if problems.is_empty() { Ok(ports) } else { Err(problems) }
    }

    /// Returns the rules of an address. A connection to a socket without rules is dropped.
    pub(super) fn get(&self, name: &str) -> Option<&ListenerRules> {
        self.0.get(name)
    }

    /// Reloads certificates that have changed.
    pub(super) fn refresh(&self) {
        self.0.values().filter_map(|port| port.tls.as_ref()).for_each(|tls| tls.refresh());
    }
}
