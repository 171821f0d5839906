//! A service, built from its config: all settings are parsed in advance (`service/config_reader.rs`), so that
//! calls need not parse them.
//!
//! External hosts that the operator permits by patterns are services with default settings (`hosts.rs`). The
//! counters (`stats.rs`) and the retry budget (`retry.rs`) of a service survive reloads of the config.

mod config_reader;
mod hosts;
pub(crate) mod retry;
pub mod stats;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use diagnostics::Diagnostic;
use http::header::{HeaderName, HeaderValue};

use crate::config::{RetriesConfig, ServiceConfig};
use crate::endpoints::{ServiceEndpoints, TargetSettings};
use crate::headers::HeaderRules;
use crate::path::{self, DecodedPath, PathError, PathGlob};
use crate::transport::{ConnectSettings, ReachableAddresses, TargetOrigin};
use config_reader::ServiceConfigReader;
use stats::{ServiceCounters, ServiceStats};

pub use hosts::{HostsError, PermittedHosts};

/// An upstream service, ready to be called.
#[derive(Debug)]
pub struct UpstreamService {
    name: Arc<str>,
    timeout: Duration,
    pub(crate) first_byte_timeout: Option<Duration>,
    pub(crate) idle_timeout: Duration,
    pub(crate) upgrade_idle_timeout: Duration,
    pub(crate) retries: RetriesConfig,
    pub(crate) targets: Arc<ServiceEndpoints>,
    pub(crate) counters: Arc<ServiceCounters>,
    pub(crate) headers: HeaderRules,
    /// The protocols that clients' connections may be upgraded to.
    pub(crate) upgrades: Vec<HeaderValue>,
    paths: Vec<PathGlob>,
}

impl UpstreamService {
    /// The name that programs and routes use.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The timeout of one call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The client headers that are forwarded to the service, and that its responses may depend on.
    #[must_use]
    pub fn forwarded_headers(&self) -> &[HeaderName] {
        &self.headers.forward
    }

    /// Whether one of the targets is at this `host:port`, or was resolved to this address. The default port
    /// is that of the target's scheme.
    #[must_use]
    pub fn has_authority(&self, authority: &str) -> bool {
        self.targets.settings().origins.iter().any(|origin| origin.has_authority(authority))
            || self.targets.has_address(authority)
    }

    /// The path prefix of the first target; usually empty.
    #[must_use]
    pub fn base_path(&self) -> &str {
        self.targets.settings().origins.first().map_or("", |origin| &origin.base_path)
    }

    /// Returns the part of a target's path after the target's path prefix; `None` if no target has such a
    /// path.
    #[must_use]
    pub fn strip_base_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.targets.settings().origins.iter().find_map(|origin| {
            let below = path.strip_prefix(origin.base_path.as_str())?;
            (below.is_empty() || below.starts_with(['/', '?'])).then_some(below)
        })
    }

    /// Checks whether a program may call this path.
    ///
    /// # Errors
    /// The errors of [`path::check_path`], and paths that the service's `paths` do not permit.
    pub fn check_path(&self, path: &str) -> Result<(), PathError> {
        path::check_path(path)?;
        path::check_start(path)?;
        self.check_permitted_path(path)
    }

    /// Checks whether a proxied request may call this path. Encoded slashes are permitted if no `paths` rule
    /// has to be matched against the decoded path.
    pub(crate) fn check_proxied_path(&self, path: &str) -> Result<(), PathError> {
        path::check_start(path)?;
        match path::check_path(path) {
            Err(PathError::EncodedSlash) if self.paths.is_empty() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.check_permitted_path(path),
        }
    }

    /// Checks a path against `paths`, both as it is written and without parameters, which some servers cut
    /// off.
    fn check_permitted_path(&self, path: &str) -> Result<(), PathError> {
        let paths = &self.paths;
        if paths.is_empty() {
            return Ok(());
        }
        // Most paths have neither escapes nor parameters.
        let is_plain = !path.bytes().any(|byte| matches!(byte, b'%' | b';'));
        // A path may be long, so it is decoded once for all patterns.
        let matches = |path: DecodedPath| paths.iter().any(|glob| glob.matches_decoded(&path));
        let is_open =
            matches(DecodedPath::new(path)) && (is_plain || matches(DecodedPath::without_parameters(path)));
        if is_open { Ok(()) } else { Err(PathError::NotPermitted) }
    }

    /// Returns the statistics of the service and its endpoints.
    pub(crate) fn stats(&self) -> ServiceStats {
        let tally = &self.counters;
        ServiceStats {
            service: Arc::clone(&self.name),
            requests: tally.requests.load(Relaxed),
            failures: tally.failures.load(Relaxed),
            retries: tally.retries.load(Relaxed),
            retries_refused: tally.retries_refused.load(Relaxed),
            response_time: tally.response_time.snapshot(),
            endpoints: self.targets.stats(),
        }
    }

    /// Creates a service from its config, with files relative to `folder`, or returns all mistakes in the
    /// config. The state of the service `before` is kept: its counters, and the endpoints that remain.
    pub(crate) fn new(
        name: &str,
        config: &ServiceConfig,
        folder: &Path,
        before: Option<&Self>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut reader = ServiceConfigReader::new(name);
        reader.check_name(name);
        Self::from_reader(reader, name, (config, folder), before, ReachableAddresses::Unrestricted)
    }

    /// Creates a service for an external host with default settings; `None` if the authority is invalid.
    pub(crate) fn new_external(authority: &str, scheme: &str, addresses: ReachableAddresses) -> Option<Self> {
        let config = ServiceConfig::with_url(format!("{scheme}://{authority}"));
        Self::from_reader(
            ServiceConfigReader::new(authority),
            authority,
            (&config, Path::new("")),
            None,
            addresses,
        )
        .ok()
    }

    fn from_reader(
        mut reader: ServiceConfigReader,
        name: &str,
        (config, folder): (&ServiceConfig, &Path),
        before: Option<&Self>,
        addresses: ReachableAddresses,
    ) -> Result<Self, Vec<Diagnostic>> {
        let name: Arc<str> = name.into();
        let dial =
            ConnectSettings { reachable_addresses: addresses, ..reader.connect_settings(config, folder) };
        let origins = reader.parse_origins(&name, config, &dial).into_iter();
        let origins = origins.map(|origin| reuse_origin(origin, before)).collect();
        let dns_refresh_rate = reader.check_duration("/dns_refresh_rate", config.dns_refresh_rate.0);
        let timeout = reader.check_duration("/timeout", config.timeout.0);
        let first_byte_timeout = reader.first_byte_timeout(config);
        let idle_timeout = reader.check_duration("/idle_timeout", config.idle_timeout.0);
        let upgrade_idle_timeout =
            reader.check_duration("/upgrade_idle_timeout", config.upgrade_idle_timeout.0);
        reader.check_retries(&config.retries);
        let headers = HeaderRules {
            forward: reader.forwarded_names(&config.forward),
            operator_headers: reader.operator_headers(&config.headers),
        };
        let checks = config.health.as_ref().and_then(|health| reader.health_checks(health, &headers));
        let plan = TargetSettings { origins, dns_refresh_rate, checks };
        let upgrades = reader.parse_upgrades(&config.upgrades);
        let paths = reader.parse_paths(&config.paths);
        if !reader.problems.is_empty() {
            return Err(reader.problems);
        }
        let targets = match before.map(|before| &before.targets) {
            Some(same) if *same.settings() == plan => Arc::clone(same),
            before => Arc::new(ServiceEndpoints::new(plan, before)),
        };
        Ok(Self {
            timeout,
            first_byte_timeout,
            idle_timeout,
            upgrade_idle_timeout,
            retries: config.retries.clone(),
            targets,
            counters: before
                .map_or_else(|| Arc::new(ServiceCounters::new()), |before| Arc::clone(&before.counters)),
            headers,
            upgrades,
            paths,
            name,
        })
    }
}

/// Returns the equal origin from before, with its connections, if there is one.
fn reuse_origin(origin: TargetOrigin, before: Option<&UpstreamService>) -> Arc<TargetOrigin> {
    let target_origin =
        before.and_then(|before| before.targets.settings().origins.iter().find(|known| ***known == origin));
    target_origin.map_or_else(|| Arc::new(origin), Arc::clone)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
