//! A service, built from its config: all settings are parsed in advance, so that calls need not parse them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use rustls::pki_types::ServerName;

use crate::config::{ConfigProblem, HealthConfig, RetriesConfig, ServiceConfig, ServiceTlsConfig};
use crate::headers::{CDN_LOOP, HOP_BY_HOP, HeaderRules};
use crate::hosts::ReachableAddresses;
use crate::path::{self, DecodedPath, PathError, PathGlob};
use crate::stats::ServiceCounters;
use crate::targets::{HealthChecks, ServiceEndpoints, TargetSettings};
use crate::transport::{ConnectSettings, TargetOrigin, tls};
use crate::upgrade::parse_protocol;

/// The maximum number of retries of a request, whatever the config.
const MAX_ATTEMPTS: u32 = 10;

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

    /// Creates a service from its config, with files relative to `folder`, or returns all mistakes in the
    /// config. The state of the service `before` is kept: its counters, and the endpoints that remain.
    pub(crate) fn new(
        name: &str,
        config: &ServiceConfig,
        folder: &Path,
        before: Option<&Self>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let mut reader = ServiceConfigReader::new(name);
        reader.check_name(name);
        Self::from_reader(reader, name, (config, folder), before, ReachableAddresses::Unrestricted)
    }

    /// Creates a service for an external host with default settings; `None` if the authority is invalid.
    pub(crate) fn new_external(authority: &str, scheme: &str, reach: ReachableAddresses) -> Option<Self> {
        let config = ServiceConfig::with_url(format!("{scheme}://{authority}"));
        Self::from_reader(
            ServiceConfigReader::new(authority),
            authority,
            (&config, Path::new("")),
            None,
            reach,
        )
        .ok()
    }

    fn from_reader(
        mut reader: ServiceConfigReader,
        name: &str,
        (config, folder): (&ServiceConfig, &Path),
        before: Option<&Self>,
        reach: ReachableAddresses,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let name: Arc<str> = name.into();
        let dial = ConnectSettings { reachable_addresses: reach, ..reader.connect_settings(config, folder) };
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
    let known =
        before.and_then(|before| before.targets.settings().origins.iter().find(|known| ***known == origin));
    known.map_or_else(|| Arc::new(origin), Arc::clone)
}

/// A reader of one service's config that collects mistakes.
struct ServiceConfigReader {
    base: String,
    problems: Vec<ConfigProblem>,
}

impl ServiceConfigReader {
    fn new(name: &str) -> Self {
        Self { base: format!("/{}", escape_pointer(name)), problems: Vec::new() }
    }

    fn report_problem(&mut self, below: &str, message: String, hint: &str) {
        let pointer = format!("{}{below}", self.base);
        self.problems.push(ConfigProblem { pointer, message, hint: hint.to_owned() });
    }

    fn check_name(&mut self, name: &str) {
        if !path::is_service_name(name) {
            let message = format!("`{name}` can't be the name of a service");
            self.report_problem(
                "",
                message,
                "The name is used as the host in URLs: letters, digits, `-` and `_`, at most 63.",
            );
        }
    }

    /// Checks that a duration is not zero.
    fn check_duration(&mut self, below: &str, time: Duration) -> Duration {
        if time.is_zero() {
            let message = match below {
                "/dns_refresh_rate" | "/health/interval" => "an interval of zero is not possible",
                _ => "with a timeout of zero, every call fails",
            };
            self.report_problem(below, message.to_owned(), "Write a time such as `2s`.");
        }
        time
    }

    /// Reads the connection settings.
    fn connect_settings(&mut self, config: &ServiceConfig, folder: &Path) -> ConnectSettings {
        let timeout = self.check_duration("/connect_timeout", config.connect_timeout.0);
        let is_https = |url: &String| url.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
        if !config.url.as_slice().iter().any(is_https) {
            if config.tls.is_some() {
                self.report_problem(
                    "/tls",
                    "no target begins with `https://`".to_owned(),
                    "Leave it out, or use TLS.",
                );
            }
            return ConnectSettings {
                timeout,
                protocol: config.protocol,
                tls: None,
                server_name: None,
                reachable_addresses: ReachableAddresses::Unrestricted,
            };
        }
        let written = config.tls.clone().unwrap_or_default();
        let tls = tls::client_tls(&written, config.protocol, folder);
        let tls = tls.or_else(|mistake| {
            self.report_problem(&format!("/tls{}", mistake.pointer_suffix), mistake.message, mistake.hint);
            // Continue with the defaults, so that the targets are checked too.
            tls::client_tls(&ServiceTlsConfig::default(), config.protocol, folder)
        });
        let server_name = written.server_name.and_then(|name| {
            let parsed = ServerName::try_from(name.clone());
            if parsed.is_err() {
                let message = format!("`{name}` is not a valid server name");
                self.report_problem("/tls/server_name", message, "Write a host name or an IP address.");
            }
            parsed.ok()
        });
        ConnectSettings {
            timeout,
            protocol: config.protocol,
            tls: tls.ok(),
            server_name,
            reachable_addresses: ReachableAddresses::Unrestricted,
        }
    }

    fn first_byte_timeout(&mut self, config: &ServiceConfig) -> Option<Duration> {
        let time = self.check_duration("/first_byte_timeout", config.first_byte_timeout?.0);
        if time >= config.timeout.0 && !config.timeout.0.is_zero() {
            let message =
                format!("`first_byte_timeout` is never reached: `timeout` is up after {}", config.timeout);
            self.report_problem(
                "/first_byte_timeout",
                message,
                "Make it shorter than `timeout`, or leave it out.",
            );
        }
        Some(time)
    }

    fn check_retries(&mut self, retries: &RetriesConfig) {
        if retries.attempts > MAX_ATTEMPTS {
            let message = format!("{} retries are too many for one request", retries.attempts);
            self.report_problem("/retries/attempts", message, "At most 10; 2 are usually enough.");
        }
    }

    fn health_checks(&mut self, health: &HealthConfig, headers: &HeaderRules) -> Option<HealthChecks> {
        let (healthy_threshold, unhealthy_threshold) = (health.healthy_threshold, health.unhealthy_threshold);
        for (below, count) in [
            ("/health/healthy_threshold", healthy_threshold),
            ("/health/unhealthy_threshold", unhealthy_threshold),
        ] {
            if count == 0 {
                let message = "the number of checks is 0".to_owned();
                self.report_problem(below, message, "Write a number of consecutive checks: at least 1.");
            }
        }
        let interval = self.check_duration("/health/interval", health.interval.0);
        let timeout = self.check_duration("/health/timeout", health.timeout.0);
        let whole = Some(health.path.as_str()).filter(|path| path.starts_with('/') && !path.contains('#'));
        let parsed = whole.and_then(|path| path.parse::<PathAndQuery>().ok());
        let Some(path) = parsed.filter(|parsed| path::check_path(parsed.path()).is_ok()) else {
            let message = format!("`{}` is not a path", health.path);
            self.report_problem("/health/path", message, "Write it as in `/healthz`.");
            return None;
        };
        Some(HealthChecks {
            path,
            headers: headers.operator_headers.clone(),
            interval,
            timeout,
            status: health.status,
            healthy_threshold,
            unhealthy_threshold,
        })
    }

    fn parse_origins(
        &mut self,
        name: &Arc<str>,
        config: &ServiceConfig,
        dial: &ConnectSettings,
    ) -> Vec<TargetOrigin> {
        use crate::config::OneOrMany;
        let urls = config.url.as_slice();
        if urls.is_empty() {
            self.report_problem("/url", "the list of targets is empty".to_owned(), "List at least one URL.");
        }
        let mut origins = Vec::with_capacity(urls.len());
        for (index, url) in urls.iter().enumerate() {
            let below = match &config.url {
                OneOrMany::One(_) => "/url".to_owned(),
                OneOrMany::Many(_) => format!("/url/{index}"),
            };
            match parse_origin(name, url, dial) {
                Ok(origin) if origins.contains(&origin) => {
                    let message = format!("`{url}` occurs twice");
                    self.report_problem(&below, message, "List each target once; all get the same share.");
                }
                Ok(origin) => origins.push(origin),
                Err(reason) => {
                    let message = format!("`{}` is not a URL of a service: {reason}", without_userinfo(url));
                    self.report_problem(&below, message, "Write it as in `http://catalog:8080`.");
                }
            }
        }
        origins
    }

    fn forwarded_names(&mut self, names: &[String]) -> Vec<HeaderName> {
        let indexed = names.iter().enumerate();
        indexed
            .filter_map(|(index, name)| self.parse_header_name(&format!("/forward/{index}"), name))
            .collect()
    }

    fn operator_headers(&mut self, headers: &BTreeMap<String, String>) -> Vec<(HeaderName, HeaderValue)> {
        let mut set = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let below = format!("/headers/{}", escape_pointer(name));
            let header_name = self.parse_header_name(&below, name);
            match HeaderValue::from_str(value) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    set.extend(header_name.map(|name| (name, value)));
                }
                // The value may be a secret, so it is not shown.
                Err(_) => {
                    let message =
                        format!("the value of the header `{name}` contains characters not valid in headers");
                    self.report_problem(
                        &below,
                        message,
                        "Visible ASCII only; a secret read from a file often ends in a newline.",
                    );
                }
            }
        }
        set
    }

    fn parse_header_name(&mut self, below: &str, text: &str) -> Option<HeaderName> {
        let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
            self.report_problem(
                below,
                format!("`{text}` is not a header name"),
                "Write it as in `authorization`.",
            );
            return None;
        };
        if HOP_BY_HOP.contains(&name) || [HOST, CONTENT_LENGTH, CDN_LOOP].contains(&name) {
            let message = format!("the header `{text}` belongs to the connection");
            self.report_problem(below, message, "Leave it out; the gateway sets it itself.");
            return None;
        }
        Some(name)
    }

    fn parse_upgrades(&mut self, protocols: &[String]) -> Vec<HeaderValue> {
        let mut listed = Vec::with_capacity(protocols.len());
        for (index, text) in protocols.iter().enumerate() {
            match parse_protocol(text) {
                Ok(protocol) => listed.push(protocol),
                Err(reason) => {
                    let message = format!("connections can't be upgraded to `{text}`: {reason}");
                    self.report_problem(
                        &format!("/upgrades/{index}"),
                        message,
                        "Write it as in `websocket`.",
                    );
                }
            }
        }
        listed
    }

    fn parse_paths(&mut self, patterns: &[String]) -> Vec<PathGlob> {
        let mut globs = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            match PathGlob::parse(pattern) {
                Ok(glob) => globs.push(glob),
                Err(reason) => {
                    let message = format!("`{pattern}` is not a path pattern: {reason}");
                    self.report_problem(&format!("/paths/{index}"), message, "Write it as in `/buyers/*`.");
                }
            }
        }
        globs
    }
}

fn parse_origin(service: &Arc<str>, url: &str, dial: &ConnectSettings) -> Result<TargetOrigin, &'static str> {
    if url.contains('#') {
        return Err("it has a fragment");
    }
    let parts = url.parse::<Uri>().map_err(|_| "it does not parse")?.into_parts();
    let scheme = match parts.scheme {
        Some(scheme) if scheme == Scheme::HTTP || scheme == Scheme::HTTPS => scheme,
        _ => return Err("it begins with neither `http://` nor `https://`"),
    };
    let authority = parts.authority.ok_or("it has no host")?;
    let port = authority.as_str().strip_prefix(authority.host());
    match port {
        None => return Err("it contains a user name; put credentials into `headers`"),
        Some(_) if authority.host().is_empty() => return Err("it has no host"),
        Some(port) if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) => {
            return Err("its port is not a number from 1 to 65535");
        }
        Some(_) => {}
    }
    let path = parts.path_and_query.filter(|path| path.as_str() != "/");
    let base = match &path {
        Some(path) if path.query().is_some() => return Err("it has a query"),
        Some(path) if path::check_path(path.path()).is_err() => {
            return Err("its path has dot segments or odd escapes");
        }
        Some(path) => path.path().trim_end_matches('/').to_owned(),
        None => String::new(),
    };
    TargetOrigin::new(service.clone(), (scheme, authority), base, dial.clone())
}

/// Returns a URL without credentials, for display.
fn without_userinfo(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            format!("{}...{}", url.get(..scheme + 3).unwrap_or_default(), url.get(at..).unwrap_or_default())
        }
        _ => url.to_owned(),
    }
}

/// Escapes a name for a JSON Pointer.
fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
