//! The configuration of a filter as its contexts and host functions read it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use services::{PermittedHosts, ServiceSet};

use crate::config::{FilterLimits, HostDialect, OnRefusal, OnTrap};
use crate::telemetry::FilterCounters;

/// The configuration of a filter, prepared for the host.
pub(crate) struct PluginSpec {
    /// The number of the plugin, unique in this process.
    pub(crate) number: u64,
    pub(crate) name: Arc<str>,
    pub(crate) root_id: String,
    pub(crate) vm_id: String,
    pub(crate) config: Bytes,
    pub(crate) vm_config: Bytes,
    pub(crate) dialect: HostDialect,
    pub(crate) on_trap: OnTrap,
    pub(crate) on_refusal: OnRefusal,
    pub(crate) limits: FilterLimits,
    pub(crate) services: ServiceSet,
    /// The services that the filter may call; `None` for all.
    pub(crate) allowed_services: Option<Vec<String>>,
    /// The hosts that the filter may call besides services.
    pub(crate) hosts: PermittedHosts,
    pub(crate) stats: Arc<FilterCounters>,
    /// Whether background activity may start, and whether it has to end.
    pub(crate) is_started: AtomicBool,
    pub(crate) is_ended: AtomicBool,
}

impl PluginSpec {
    /// Whether the filter may call this service.
    pub(crate) fn can_call_service(&self, service: &str) -> bool {
        self.allowed_services
            .as_ref()
            .is_none_or(|open| open.iter().any(|name| name.eq_ignore_ascii_case(service)))
    }
}
