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
use crate::upgrade::listed_protocol;

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
    pub(crate) tally: Arc<ServiceCounters>,
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
    pub fn forwarded(&self) -> &[HeaderName] {
        &self.headers.forward
    }

    /// Whether one of the targets is at this `host:port`, or was resolved to this address. The default port
    /// is that of the target's scheme.
    #[must_use]
    pub fn is_at(&self, authority: &str) -> bool {
        self.targets.plan().origins.iter().any(|origin| origin.is_at(authority))
            || self.targets.has_address(authority)
    }

    /// The path prefix of the first target; usually empty.
    #[must_use]
    pub fn base_path(&self) -> &str {
        self.targets.plan().origins.first().map_or("", |origin| &origin.base)
    }

    /// Returns the part of a target's path after the target's path prefix; `None` if no target has such a
    /// path.
    #[must_use]
    pub fn below_base<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.targets.plan().origins.iter().find_map(|origin| {
            let below = path.strip_prefix(origin.base.as_str())?;
            (below.is_empty() || below.starts_with(['/', '?'])).then_some(below)
        })
    }

    /// Checks whether a program may call this path.
    ///
    /// # Errors
    /// The errors of [`path::check`], and paths that the service's `paths` do not permit.
    pub fn check_path(&self, path: &str) -> Result<(), PathError> {
        path::check(path)?;
        path::check_start(path)?;
        self.check_open(path)
    }

    /// Checks whether a proxied request may call this path. Encoded slashes are permitted if no `paths` rule
    /// has to be matched against the decoded path.
    pub(crate) fn check_proxied_path(&self, path: &str) -> Result<(), PathError> {
        path::check_start(path)?;
        match path::check(path) {
            Err(PathError::EncodedSlash) if self.paths.is_empty() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.check_open(path),
        }
    }

    /// Checks a path against `paths`, both as it is written and without parameters, which some servers cut
    /// off.
    fn check_open(&self, path: &str) -> Result<(), PathError> {
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
        if is_open { Ok(()) } else { Err(PathError::NotOpen) }
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
        Self::read(reader, name, (config, folder), before, ReachableAddresses::Everywhere)
    }

    /// Creates a service for an external host with default settings; `None` if the authority is invalid.
    pub(crate) fn at(authority: &str, scheme: &str, reach: ReachableAddresses) -> Option<Self> {
        let config = ServiceConfig::at(format!("{scheme}://{authority}"));
        Self::read(ServiceConfigReader::new(authority), authority, (&config, Path::new("")), None, reach).ok()
    }

    fn read(
        mut reader: ServiceConfigReader,
        name: &str,
        (config, folder): (&ServiceConfig, &Path),
        before: Option<&Self>,
        reach: ReachableAddresses,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let name: Arc<str> = name.into();
        let dial = ConnectSettings { reach, ..reader.dial(config, folder) };
        let origins = reader.origins(&name, config, &dial).into_iter();
        let origins = origins.map(|origin| kept(origin, before)).collect();
        let dns_refresh_rate = reader.time("/dns_refresh_rate", config.dns_refresh_rate.0);
        let timeout = reader.time("/timeout", config.timeout.0);
        let first_byte_timeout = reader.first_byte(config);
        let idle_timeout = reader.time("/idle_timeout", config.idle_timeout.0);
        let upgrade_idle_timeout = reader.time("/upgrade_idle_timeout", config.upgrade_idle_timeout.0);
        reader.retries(&config.retries);
        let headers =
            HeaderRules { forward: reader.forward(&config.forward), set: reader.set(&config.headers) };
        let checks = config.health.as_ref().and_then(|health| reader.checks(health, &headers));
        let plan = TargetSettings { origins, dns_refresh_rate, checks };
        let upgrades = reader.upgrades(&config.upgrades);
        let paths = reader.paths(&config.paths);
        if !reader.problems.is_empty() {
            return Err(reader.problems);
        }
        let targets = match before.map(|before| &before.targets) {
            Some(same) if *same.plan() == plan => Arc::clone(same),
            before => Arc::new(ServiceEndpoints::new(plan, before)),
        };
        Ok(Self {
            timeout,
            first_byte_timeout,
            idle_timeout,
            upgrade_idle_timeout,
            retries: config.retries.clone(),
            targets,
            tally: before
                .map_or_else(|| Arc::new(ServiceCounters::new()), |before| Arc::clone(&before.tally)),
            headers,
            upgrades,
            paths,
            name,
        })
    }
}

/// Returns the equal origin from before, with its connections, if there is one.
fn kept(origin: TargetOrigin, before: Option<&UpstreamService>) -> Arc<TargetOrigin> {
    let known =
        before.and_then(|before| before.targets.plan().origins.iter().find(|known| ***known == origin));
    known.map_or_else(|| Arc::new(origin), Arc::clone)
}

/// A reader of one service's config that collects mistakes.
struct ServiceConfigReader {
    base: String,
    problems: Vec<ConfigProblem>,
}

impl ServiceConfigReader {
    fn new(name: &str) -> Self {
        Self { base: format!("/{}", escape(name)), problems: Vec::new() }
    }

    fn report(&mut self, below: &str, message: String, hint: &str) {
        let pointer = format!("{}{below}", self.base);
        self.problems.push(ConfigProblem { pointer, message, hint: hint.to_owned() });
    }

    fn check_name(&mut self, name: &str) {
        if !path::is_service_name(name) {
            let message = format!("`{name}` can't be the name of a service");
            self.report(
                "",
                message,
                "The name is used as the host in URLs: letters, digits, `-` and `_`, at most 63.",
            );
        }
    }

    /// Checks that a duration is not zero.
    fn time(&mut self, below: &str, time: Duration) -> Duration {
        if time.is_zero() {
            let message = match below {
                "/dns_refresh_rate" | "/health/interval" => "an interval of zero is not possible",
                _ => "with a timeout of zero, every call fails",
            };
            self.report(below, message.to_owned(), "Write a time such as `2s`.");
        }
        time
    }

    /// Reads the connection settings.
    fn dial(&mut self, config: &ServiceConfig, folder: &Path) -> ConnectSettings {
        let timeout = self.time("/connect_timeout", config.connect_timeout.0);
        let is_https = |url: &String| url.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
        if !config.url.as_slice().iter().any(is_https) {
            if config.tls.is_some() {
                self.report(
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
                reach: ReachableAddresses::Everywhere,
            };
        }
        let written = config.tls.clone().unwrap_or_default();
        let tls = tls::client(&written, config.protocol, folder);
        let tls = tls.or_else(|mistake| {
            self.report(&format!("/tls{}", mistake.below), mistake.message, mistake.hint);
            // Continue with the defaults, so that the targets are checked too.
            tls::client(&ServiceTlsConfig::default(), config.protocol, folder)
        });
        let server_name = written.server_name.and_then(|name| {
            let parsed = ServerName::try_from(name.clone());
            if parsed.is_err() {
                let message = format!("`{name}` is not a valid server name");
                self.report("/tls/server_name", message, "Write a host name or an IP address.");
            }
            parsed.ok()
        });
        ConnectSettings {
            timeout,
            protocol: config.protocol,
            tls: tls.ok(),
            server_name,
            reach: ReachableAddresses::Everywhere,
        }
    }

    fn first_byte(&mut self, config: &ServiceConfig) -> Option<Duration> {
        let time = self.time("/first_byte_timeout", config.first_byte_timeout?.0);
        if time >= config.timeout.0 && !config.timeout.0.is_zero() {
            let message =
                format!("`first_byte_timeout` is never reached: `timeout` is up after {}", config.timeout);
            self.report("/first_byte_timeout", message, "Make it shorter than `timeout`, or leave it out.");
        }
        Some(time)
    }

    fn retries(&mut self, retries: &RetriesConfig) {
        if retries.attempts > MAX_ATTEMPTS {
            let message = format!("{} retries are too many for one request", retries.attempts);
            self.report("/retries/attempts", message, "At most 10; 2 are usually enough.");
        }
    }

    fn checks(&mut self, health: &HealthConfig, headers: &HeaderRules) -> Option<HealthChecks> {
        let (healthy_threshold, unhealthy_threshold) = (health.healthy_threshold, health.unhealthy_threshold);
        for (below, count) in [
            ("/health/healthy_threshold", healthy_threshold),
            ("/health/unhealthy_threshold", unhealthy_threshold),
        ] {
            if count == 0 {
                let message = "the number of checks is 0".to_owned();
                self.report(below, message, "Write a number of consecutive checks: at least 1.");
            }
        }
        let interval = self.time("/health/interval", health.interval.0);
        let timeout = self.time("/health/timeout", health.timeout.0);
        let whole = Some(health.path.as_str()).filter(|path| path.starts_with('/') && !path.contains('#'));
        let parsed = whole.and_then(|path| path.parse::<PathAndQuery>().ok());
        let Some(path) = parsed.filter(|parsed| path::check(parsed.path()).is_ok()) else {
            let message = format!("`{}` is not a path", health.path);
            self.report("/health/path", message, "Write it as in `/healthz`.");
            return None;
        };
        Some(HealthChecks {
            path,
            headers: headers.set.clone(),
            interval,
            timeout,
            status: health.status,
            healthy_threshold,
            unhealthy_threshold,
        })
    }

    fn origins(
        &mut self,
        name: &Arc<str>,
        config: &ServiceConfig,
        dial: &ConnectSettings,
    ) -> Vec<TargetOrigin> {
        use crate::config::OneOrMany;
        let urls = config.url.as_slice();
        if urls.is_empty() {
            self.report("/url", "the list of targets is empty".to_owned(), "List at least one URL.");
        }
        let mut origins = Vec::with_capacity(urls.len());
        for (index, url) in urls.iter().enumerate() {
            let below = match &config.url {
                OneOrMany::One(_) => "/url".to_owned(),
                OneOrMany::Many(_) => format!("/url/{index}"),
            };
            match origin(name, url, dial) {
                Ok(origin) if origins.contains(&origin) => {
                    let message = format!("`{url}` occurs twice");
                    self.report(&below, message, "List each target once; all get the same share.");
                }
                Ok(origin) => origins.push(origin),
                Err(reason) => {
                    let message = format!("`{}` is not a URL of a service: {reason}", without_userinfo(url));
                    self.report(&below, message, "Write it as in `http://catalog:8080`.");
                }
            }
        }
        origins
    }

    fn forward(&mut self, names: &[String]) -> Vec<HeaderName> {
        let indexed = names.iter().enumerate();
        indexed.filter_map(|(index, name)| self.header_name(&format!("/forward/{index}"), name)).collect()
    }

    fn set(&mut self, headers: &BTreeMap<String, String>) -> Vec<(HeaderName, HeaderValue)> {
        let mut set = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let below = format!("/headers/{}", escape(name));
            let header_name = self.header_name(&below, name);
            match HeaderValue::from_str(value) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    set.extend(header_name.map(|name| (name, value)));
                }
                // The value may be a secret, so it is not shown.
                Err(_) => {
                    let message =
                        format!("the value of the header `{name}` contains characters not valid in headers");
                    self.report(
                        &below,
                        message,
                        "Visible ASCII only; a secret read from a file often ends in a newline.",
                    );
                }
            }
        }
        set
    }

    fn header_name(&mut self, below: &str, text: &str) -> Option<HeaderName> {
        let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
            self.report(below, format!("`{text}` is not a header name"), "Write it as in `authorization`.");
            return None;
        };
        if HOP_BY_HOP.contains(&name) || [HOST, CONTENT_LENGTH, CDN_LOOP].contains(&name) {
            let message = format!("the header `{text}` belongs to the connection");
            self.report(below, message, "Leave it out; the gateway sets it itself.");
            return None;
        }
        Some(name)
    }

    fn upgrades(&mut self, protocols: &[String]) -> Vec<HeaderValue> {
        let mut listed = Vec::with_capacity(protocols.len());
        for (index, text) in protocols.iter().enumerate() {
            match listed_protocol(text) {
                Ok(protocol) => listed.push(protocol),
                Err(reason) => {
                    let message = format!("connections can't be upgraded to `{text}`: {reason}");
                    self.report(&format!("/upgrades/{index}"), message, "Write it as in `websocket`.");
                }
            }
        }
        listed
    }

    fn paths(&mut self, patterns: &[String]) -> Vec<PathGlob> {
        let mut globs = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            match PathGlob::parse(pattern) {
                Ok(glob) => globs.push(glob),
                Err(reason) => {
                    let message = format!("`{pattern}` is not a path pattern: {reason}");
                    self.report(&format!("/paths/{index}"), message, "Write it as in `/buyers/*`.");
                }
            }
        }
        globs
    }
}

fn origin(service: &Arc<str>, url: &str, dial: &ConnectSettings) -> Result<TargetOrigin, &'static str> {
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
        Some(path) if path::check(path.path()).is_err() => {
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
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
