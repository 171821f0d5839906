//! Checks of one service's config, and the parsing of its settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diagnostics::Diagnostic;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use rustls::pki_types::ServerName;

use crate::config::{HealthConfig, OneOrMany, RetriesConfig, ServiceConfig, ServiceTlsConfig};
use crate::endpoints::HealthChecks;
use crate::headers::{CDN_LOOP, HOP_BY_HOP, HeaderRules};
use crate::path::{self, PathGlob};
use crate::transport::upgrade::parse_protocol;
use crate::transport::{ConnectSettings, ReachableAddresses, TargetOrigin, tls};

/// The maximum number of retries of a request, whatever the config.
const MAX_ATTEMPTS: u32 = 10;

/// A reader of one service's config that collects mistakes.
pub(super) struct ServiceConfigReader {
    base: String,
    pub(super) problems: Vec<Diagnostic>,
}

impl ServiceConfigReader {
    pub(super) fn new(name: &str) -> Self {
        Self { base: format!("/{}", escape_pointer(name)), problems: Vec::new() }
    }

    fn report_problem(&mut self, below: &str, message: String, hint: &str) {
        let pointer = format!("{}{below}", self.base);
        self.problems.push(Diagnostic::new(pointer, message, hint));
    }

    pub(super) fn check_name(&mut self, name: &str) {
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
    pub(super) fn check_duration(&mut self, below: &str, time: Duration) -> Duration {
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
    pub(super) fn connect_settings(&mut self, config: &ServiceConfig, folder: &Path) -> ConnectSettings {
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
        let tls_config = config.tls.clone().unwrap_or_default();
        let tls = tls::client_tls(&tls_config, config.protocol, folder);
        let tls = tls.or_else(|mistake| {
            self.report_problem(&format!("/tls{}", mistake.pointer_suffix), mistake.message, mistake.hint);
            // Continue with the defaults, so that the targets are checked too.
            tls::client_tls(&ServiceTlsConfig::default(), config.protocol, folder)
        });
        let server_name = tls_config.server_name.and_then(|name| {
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

    pub(super) fn first_byte_timeout(&mut self, config: &ServiceConfig) -> Option<Duration> {
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

    pub(super) fn check_retries(&mut self, retries: &RetriesConfig) {
        if retries.attempts > MAX_ATTEMPTS {
            let message = format!("{} retries are too many for one request", retries.attempts);
            self.report_problem("/retries/attempts", message, "At most 10; 2 are usually enough.");
        }
    }

    pub(super) fn health_checks(
        &mut self,
        health: &HealthConfig,
        headers: &HeaderRules,
    ) -> Option<HealthChecks> {
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

    pub(super) fn parse_origins(
        &mut self,
        name: &Arc<str>,
        config: &ServiceConfig,
        dial: &ConnectSettings,
    ) -> Vec<TargetOrigin> {
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

    pub(super) fn forwarded_names(&mut self, names: &[String]) -> Vec<HeaderName> {
        let indexed = names.iter().enumerate();
        indexed
            .filter_map(|(index, name)| self.parse_header_name(&format!("/forward/{index}"), name))
            .collect()
    }

    pub(super) fn operator_headers(
        &mut self,
        headers: &BTreeMap<String, String>,
    ) -> Vec<(HeaderName, HeaderValue)> {
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

    pub(super) fn parse_upgrades(&mut self, protocols: &[String]) -> Vec<HeaderValue> {
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

    pub(super) fn parse_paths(&mut self, patterns: &[String]) -> Vec<PathGlob> {
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
