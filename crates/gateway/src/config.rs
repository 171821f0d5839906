//! `orfa.yaml`: the config is one struct, composed of the sections of the other crates.
//!
//! There are two stages. [`read`] turns text into a [`GatewayConfig`] or into *all* its [`Diagnostic`]s,
//! and touches only the files that `${file:...}` names: YAML is read into a tree with positions (`yaml.rs`),
//! keys of old versions get their new names (`renamed_keys.rs`), and the tree is validated against the JSON
//! Schema (`schema.rs`), checked for constraints that a schema can't express (`check.rs`), and deserialised.
//! The files that the config names are then registered, to be watched (`referenced_files.rs`).
//! [`crate::Gateway::build`] is the second stage and builds the runtime objects.

mod admin;
pub(crate) mod api_key;
pub(crate) mod auth;
pub(crate) mod certificate_name;
mod check;
pub(crate) mod companion_files;
mod compress;
mod connections;
pub(crate) mod cors;
pub(crate) mod host_names;
mod listen;
mod referenced_files;
pub(crate) mod renamed_keys;
pub(crate) mod rights;
mod schema;
mod shed;
mod source;
mod substitute;
mod traces;
pub(crate) mod trusted_proxies;
mod yaml;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use services::{BytesConfig, DurationConfig, ServiceConfig};

pub use admin::{AdminConfig, AdminListenerConfig};
pub use auth::{AuthConfig, CallerConfig, CallerConfigs, JwtConfig, KeysConfig, SignatureAlgorithm};
pub use compress::{CompressConfig, CompressOptions, ContentCodingKind};
pub use connections::ConnectionsConfig;
pub use cors::CorsConfig;
pub use listen::{
    CertificateConfig, ClientCertificatesConfig, EachListenerConfig, ListenConfig, ListenerConfig, TlsConfig,
};
pub(crate) use referenced_files::matching_files;
pub use referenced_files::watched_graphql_files;
pub use rights::{RateConfig, RightsConfig, RowConfig};
pub use schema::schema;
pub use shed::ShedConfig;
pub use source::FieldPositions;
pub use traces::TracesConfig;

/// The config of a gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// The address that the gateway listens on, such as `0.0.0.0:8080`, or a list of addresses.
    #[serde(default = "GatewayConfig::default_listen")]
    pub listen: ListenConfig,
    /// Limits on the resources that clients may use at once: connections, TLS handshakes, HTTP/2 requests,
    /// bytes of request bodies and responses.
    #[serde(default)]
    pub connections: ConnectionsConfig,
    /// The proxies in front of the gateway that are trusted to report client addresses, as networks:
    /// `10.0.0.0/8`.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// The header in which trusted proxies report the address of their client: `x-forwarded-for`, `forwarded`
    /// (RFC 7239), or a product's own, such as `cf-connecting-ip`. With all but `forwarded`, the requested
    /// scheme, host and port are read from `X-Forwarded-Proto`, `-Host` and `-Port`. A trusted proxy must set
    /// or remove all three: those that it passes on as its client wrote them are believed. Other headers with
    /// client addresses are rewritten, and all other forwarding headers are removed, except for
    /// `proxy_headers`.
    #[serde(default = "GatewayConfig::default_client_ip_header")]
    pub client_ip_header: String,
    /// Further `X-Forwarded-*` headers and headers of client certificates that trusted proxies set
    /// themselves, overwriting those of their clients. They are passed on unchanged: `x-forwarded-prefix`,
    /// `client-cert`, `ssl-client-verify`. Headers that override the method or the path are always removed.
    #[serde(default)]
    pub proxy_headers: Vec<String>,
    /// The address of the admin listener, which serves `/healthz`, `/readyz` and `/metrics`; `off` disables
    /// it. By default `127.0.0.1:9090`, if that is free.
    #[serde(default)]
    pub admin: Option<AdminConfig>,
    /// A Unix socket, relative to the config, through which the next `orfa serve` takes over the listening
    /// sockets of this one. Without it the next process finds the addresses in use.
    #[serde(default)]
    pub takeover: Option<PathBuf>,
    /// The upstream services, by the names that programs and routes use.
    #[serde(default)]
    pub services: BTreeMap<String, ServiceConfig>,
    /// The cross-origin rules of every route without rules of its own.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Response compression on every route without a setting of its own: `true`, `false`, or options. By
    /// default, responses that the gateway generates are compressed for clients that accept it, and those of
    /// proxied services are passed through, since a service sees the client's `Accept-Encoding`. If a
    /// response contains a secret and reflects parts of the request, its compressed length can reveal the
    /// secret (BREACH): set `false` for such routes.
    #[serde(default)]
    pub compress: Option<CompressConfig>,
    /// The methods by which callers authenticate.
    #[serde(default)]
    pub auth: AuthConfig,
    /// The callers, each with the keys, certificates or token subjects that identify it.
    #[serde(default)]
    pub callers: CallerConfigs,
    /// The rights of callers: a row for each caller or group. `anonymous` and `others` are rows too.
    #[serde(default)]
    pub rights: RightsConfig,
    /// Developers' signing keys, by the names that signatures use, and the rights of programs that are signed
    /// with them.
    #[serde(default)]
    pub trust: query::TrustConfig,
    /// Rules for the programs of all query routes.
    #[serde(default)]
    pub programs: query::ProgramsConfig,
    /// Load shedding: how the gateway protects itself from overload.
    #[serde(default)]
    pub shed: ShedConfig,
    /// The routes.
    pub routes: Vec<RouteConfig>,
    /// Graceful shutdown.
    #[serde(default)]
    pub drain: DrainConfig,
    /// Logging.
    #[serde(default)]
    pub log: LogConfig,
    /// Traces, exported to a collector. Disabled by default.
    #[serde(default)]
    pub traces: Option<TracesConfig>,
    /// Settings that all scripts share: their state and their runtimes.
    #[serde(default)]
    pub scripts: script_runtime::ScriptsConfig,
    /// The query runtime: threads, pools, caches.
    #[serde(default)]
    pub runtime: query::RuntimeConfig,
    /// The launcher that starts the workers of scripts in confinement. It is set by the program that builds
    /// the gateway.
    #[serde(skip)]
    pub launcher: Option<script_runtime::WorkerLauncher>,
    /// The positions of the fields in the file.
    #[serde(skip)]
    pub source: FieldPositions,
}

/// Reads a file that an operator writes by hand. The size is limited, since files such as `/dev/zero` are
/// endless.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    read_mib(path, 1)
}

/// Reads a file that may be machine-generated: a large supergraph has megabytes.
pub(crate) fn read_long_file(path: &Path) -> io::Result<String> {
    read_mib(path, 32)
}

#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "at most `most` MiB and one byte"))]
fn read_mib(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let size = File::open(path)?.take((most << 20) + 1).read_to_string(&mut text)?;
    if size as u64 > most << 20 {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} MiB")));
    }
    Ok(text)
}

/// A route: a path and exactly one handler.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The path. `/*` at its end matches everything below.
    pub path: String,
    /// Run programs that clients send.
    #[serde(default)]
    pub query: Option<query::QueryConfig>,
    /// Forward requests to a service.
    #[serde(default)]
    pub proxy: Option<ProxyConfig>,
    /// Answer with a service written in S.
    #[serde(default)]
    pub script: Option<script_runtime::ScriptConfig>,
    /// Answer with the combined responses of several services, as declared in a file. Parts of the path in
    /// braces are inputs: `/buyers/{id}`.
    #[serde(default)]
    pub aggregate: Option<aggregate::AggregateConfig>,
    /// Answer GraphQL requests, with REST and GraphQL services combined into one schema.
    #[serde(default)]
    pub graphql: Option<graphql::GraphqlConfig>,
    /// The Proxy-Wasm filters for the requests and responses of this route.
    #[serde(default)]
    pub filters: Vec<filter::FilterConfig>,
    /// The cross-origin rules of this route.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Response compression on this route, in place of the global `compress`.
    #[serde(default)]
    pub compress: Option<CompressConfig>,
    /// Whether JSON responses are sent deduplicated to clients that request it with `Accept`.
    #[serde(default = "RouteConfig::default_dedup")]
    pub dedup: bool,
    /// Whether callers have to authenticate. By default they have to if the config has any callers, unless
    /// `rights` has a row `anonymous`.
    #[serde(default)]
    pub auth: Option<AuthRule>,
    /// The limits of a request on this route, for every kind of handler.
    #[serde(default)]
    pub limits: RouteLimitsConfig,
}

/// Whether callers have to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthRule {
    /// Requests without credentials are answered with 401.
    Required,
    /// Requests without credentials have the rights of the row `anonymous`.
    Optional,
}

/// The destination of forwarded requests: a service's name, or a name with options.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProxyConfig {
    /// The name of the service.
    Service(String),
    /// The service, with options.
    More(ProxyOptions),
}

/// The options of a proxied route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyOptions {
    /// The name of the service.
    pub service: String,
    /// On a route with `/*`, forward the whole path instead of only the part that `*` matches.
    #[serde(default)]
    pub keep_prefix: bool,
}

/// The limits of one request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteLimitsConfig {
    /// The maximum size of a request body.
    pub request_body: BytesConfig,
    /// The minimum rate of a request body in bytes a second, until the response begins. A client may pause
    /// for 30 s at a time, and all pauses together may last 30 s plus the received bytes divided by this
    /// rate. With `0` only single pauses are limited, for streams of messages.
    pub min_request_body_rate: BytesConfig,
    /// The time within which the response has to begin.
    pub timeout: DurationConfig,
}

/// Graceful shutdown.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainConfig {
    /// The time after SIGTERM for which requests are still accepted while `/readyz` already reports that the
    /// gateway is draining. It lets load balancers react before connections are refused. Ctrl-C skips it.
    pub delay: DurationConfig,
    /// The time that requests in flight then have to complete.
    pub timeout: DurationConfig,
}

/// Logging.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Whether each request is logged, with one line.
    pub access: bool,
}

impl GatewayConfig {
    /// The config of `orfa dev`: a query route over these services that pages on this machine may use.
    ///
    /// # Errors
    /// Mistakes in the names and URLs, which come from the command line.
    pub fn dev(services: &[(String, String)], port: u16) -> Result<Self, Vec<Diagnostic>> {
        let names: Vec<&String> = services.iter().map(|(name, _)| name).collect();
        let urls = services.iter().map(|(name, url)| (name.clone(), json!({ "url": url })));
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*", "https://localhost:*"];
        let value = json!({
            "listen": format!("127.0.0.1:{port}"),
            "admin": Self::ADMIN_OFF,
            "services": urls.collect::<serde_json::Map<_, _>>(),
            "cors": { "origins": origins },
            // Compilers that run beside it on a developer's machine don't indicate overload.
            "shed": { "automatic": false },
            "routes": [{ "path": "/query", "query": { "services": names } }],
        });
        let mut source = FieldPositions::new(Path::new("command line"));
        validate_config(value, &mut source, Vec::new()).map(|config| GatewayConfig { source, ..config })
    }

    /// Adds a route that an aggregate answers.
    ///
    /// # Errors
    /// If the path is invalid.
    pub fn with_aggregate(mut self, path: &str, file: &Path) -> Result<Self, serde_json::Error> {
        let route = json!({ "path": path, "aggregate": file });
        self.routes.push(serde_json::from_value(route)?);
        self.note_aggregates();
        Ok(self)
    }

    /// The value of `admin` that disables the listener.
    pub(crate) const ADMIN_OFF: &str = "off";
    /// The default address of the admin listener.
    pub(crate) const DEFAULT_ADMIN: &str = "127.0.0.1:9090";

    fn default_client_ip_header() -> String {
        "x-forwarded-for".to_owned()
    }

    fn default_listen() -> ListenConfig {
        ListenConfig::from_address("127.0.0.1:8080")
    }
}

impl RouteConfig {
    fn default_dedup() -> bool {
        true
    }

    /// The path in the normal form that requests are matched in.
    pub(crate) fn normal_path(&self) -> Cow<'_, str> {
        services::path::normalize_target(&self.path).map_or(Cow::Borrowed(self.path.as_str()), Cow::Owned)
    }
}

impl ProxyConfig {
    pub(crate) fn service(&self) -> &str {
        match self {
            Self::Service(service) | Self::More(ProxyOptions { service, .. }) => service,
        }
    }

    pub(crate) fn keep_prefix(&self) -> bool {
        matches!(self, Self::More(ProxyOptions { keep_prefix: true, .. }))
    }
}

impl Default for RouteLimitsConfig {
    fn default() -> Self {
        Self {
            request_body: BytesConfig(64 << 20),
            min_request_body_rate: BytesConfig(500),
            timeout: DurationConfig(std::time::Duration::from_secs(60)),
        }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { delay: DurationConfig::from_secs(5), timeout: DurationConfig::from_secs(30) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { access: true }
    }
}

/// The result of reading a config file.
#[derive(Debug)]
pub struct ConfigReadResult {
    /// The config, or all its mistakes in the order of the file.
    pub config: Result<GatewayConfig, Vec<Diagnostic>>,
    /// The files that the config consists of, including missing ones. They are watched for changes.
    pub files: Vec<PathBuf>,
    /// The warnings, also if the config has mistakes.
    pub warnings: Vec<Diagnostic>,
}

/// Reads the config file.
///
/// # Errors
/// All its mistakes, in the order of the file.
pub fn read(file: &Path) -> Result<GatewayConfig, Vec<Diagnostic>> {
    read_watched(file).config
}

/// Reads the config file, and lists the files to watch for changes.
#[must_use]
pub fn read_watched(file: &Path) -> ConfigReadResult {
    match read_file(file) {
        Ok(text) => read_document(&text, file),
        Err(error) => {
            let mistake = FieldPositions::new(file).mistake("", format!("cannot be read: {error}"), None);
            ConfigReadResult {
                config: Err(vec![mistake]),
                files: vec![file.to_owned()],
                warnings: Vec::new(),
            }
        }
    }
}

/// Reads a config from its text; `file` is its name in mistakes, and relative paths start beside it.
///
/// # Errors
/// All its mistakes, in the order of the file.
pub fn read_text(text: &str, file: &Path) -> Result<GatewayConfig, Vec<Diagnostic>> {
    read_document(text, file).config
}

fn read_document(text: &str, file: &Path) -> ConfigReadResult {
    let yaml::YamlDocument { value, mut source, mistakes } = match yaml::read(text, file) {
        Ok(document) => document,
        Err(mistakes) => {
            let files = vec![file.to_owned()];
            return ConfigReadResult { config: Err(mistakes), files, warnings: Vec::new() };
        }
    };
    source.note_text(text);
    match validate_config(value, &mut source, mistakes) {
        Ok(config) => {
            let mut config = GatewayConfig { source, ..config };
            config.note_files();
            let (files, warnings) = (config.source.files().to_vec(), config.source.warnings().to_vec());
            ConfigReadResult { config: Ok(config), files, warnings }
        }
        Err(mistakes) => {
            let (files, warnings) = (source.files().to_vec(), source.warnings().to_vec());
            ConfigReadResult { config: Err(mistakes), files, warnings }
        }
    }
}

/// Validates and deserialises a config, without its source, which gets the warnings.
fn validate_config(
    mut value: Value,
    source: &mut FieldPositions,
    mut mistakes: Vec<Diagnostic>,
) -> Result<GatewayConfig, Vec<Diagnostic>> {
    // Further mistakes in a value whose `${...}` could not be resolved would only repeat the problem.
    let unfilled: Vec<_> = mistakes.iter().map(|mistake| mistake.location.line_and_column()).collect();
    mistakes.extend(renamed_keys::apply_renames(renamed_keys::CONFIG, &mut value, source));
    let (diagnostics, warnings) = check::check(&value, source);
    let found = schema::validate(&value, source, &schema::schema_for::<GatewayConfig>())
        .into_iter()
        .chain(diagnostics);
    warnings.into_iter().for_each(|warning| source.warn(warning));
    mistakes.extend(found.filter(|mistake| !unfilled.contains(&mistake.location.line_and_column())));
    companion_files::deserialise(value, source, mistakes)
}

/// Returns the mistake in a value that the schema accepts and its type rejects.
fn deserialisation_mistake(
    error: &serde_path_to_error::Error<serde_json::Error>,
    source: &FieldPositions,
) -> Diagnostic {
    use serde_path_to_error::Segment;
    let pointer = error.path().iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => json::pointer::append_step(&pointer, key),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    });
    let message =
        if source.is_hidden(&pointer) { "the value is wrong".into() } else { error.inner().to_string() };
    source.mistake(&pointer, message, None)
}
