//! `orfa.yaml`: the whole config is this struct of the other crates' sections.
//!
//! Two stages. [`read`] turns text into a [`Config`] or into *all* its [`Mistake`]s and touches nothing
//! but the files that `${file:...}` names: YAML to a tree with positions (`yaml.rs`), validated against
//! the JSON Schema (`schema.rs`), deserialised, then checked for what no schema can say (`check.rs`).
//! [`crate::Gateway::build`] is the second stage and makes ready objects of it.

mod admin;
pub(crate) mod beside;
mod check;
mod connections;
mod listen;
mod mistake;
mod schema;
mod source;
mod substitute;
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

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use services::{Bytes, Duration, ServiceConfig};

pub use crate::cors::config::CorsConfig;
pub use crate::encode::config::{CompressConfig, CompressOptions};
pub use crate::identity::config::{Algorithm, AuthConfig, CallerConfig, Callers, JwtConfig, KeysConfig};
pub use crate::rights::config::{RateConfig, RightsConfig, RowConfig};
pub use crate::shed::ShedConfig;
pub use crate::trace::TracesConfig;
pub use admin::{AdminConfig, AdminListenerConfig};
pub use connections::ConnectionsConfig;
pub use listen::{
    CertificateConfig, ClientCertificatesConfig, EachListenerConfig, ListenConfig, ListenerConfig, TlsConfig,
};
pub use mistake::Mistake;
pub use schema::schema;
pub use source::Source;

/// The config of a gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the gateway listens: `0.0.0.0:8080`, or a list of addresses.
    #[serde(default = "Config::default_listen")]
    pub listen: ListenConfig,
    /// How much of the gateway clients may take at once: connections, TLS handshakes, requests over HTTP/2, bytes of answers.
    #[serde(default)]
    pub connections: ConnectionsConfig,
    /// The proxies before the gateway whose word about clients' addresses is believed: `10.0.0.0/8`.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// The header in which those proxies say where their client is: `x-forwarded-for`, `forwarded` (RFC 7239), or the one
    /// that a product writes, such as `cf-connecting-ip`. With all but `forwarded`, `X-Forwarded-Proto`, `-Host` and
    /// `-Port` say what the client asked for. Nothing is read from other such headers of theirs: those that say where a
    /// client is are written anew, and the rest are removed, except for `proxy_headers`.
    #[serde(default = "Config::default_client_ip_header")]
    pub client_ip_header: String,
    /// Other `X-Forwarded-*` headers and those of client certificates that those proxies set themselves, whatever their
    /// clients send, and that go on as they come: `x-forwarded-prefix`, `client-cert`, `ssl-client-verify`. Headers that mean
    /// another method or path are removed always.
    #[serde(default)]
    pub proxy_headers: Vec<String>,
    /// Where the operator asks for `/healthz`, `/readyz` and `/metrics`; `off` for nowhere. Without it that
    /// is `127.0.0.1:9090`, if nothing else listens there.
    #[serde(default)]
    pub admin: Option<AdminConfig>,
    /// A Unix socket, relative to the config: where the next `orfa serve` takes over what this one listens
    /// on. Without it the next one finds the addresses taken.
    #[serde(default)]
    pub takeover: Option<PathBuf>,
    /// The upstream services, by the names that programs and routes use.
    #[serde(default)]
    pub services: BTreeMap<String, ServiceConfig>,
    /// Who may call from other origins, on every route that does not say it itself.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Whether answers are compressed for clients that take it, on every route that does not say it itself: `true`,
    /// `false`, or how. Without it those that the gateway makes are, and those of proxied services go out as they came:
    /// a service sees itself what its client takes. An answer that holds a secret and repeats what a stranger put into
    /// the request betrays the secret by its length (BREACH): say `false` for such routes.
    #[serde(default)]
    pub compress: Option<CompressConfig>,
    /// How callers prove who they are.
    #[serde(default)]
    pub auth: AuthConfig,
    /// Who calls: by which key, certificate or token they are known.
    #[serde(default)]
    pub callers: Callers,
    /// What callers may do, a row for each caller or group; `anonymous` and `others` are rows too.
    #[serde(default)]
    pub rights: RightsConfig,
    /// Developers' keys, by the names that signatures give: what their programs may do.
    #[serde(default)]
    pub trust: query::TrustConfig,
    /// Rules for the programs of all query routes.
    #[serde(default)]
    pub programs: query::ProgramsConfig,
    /// How the gateway protects itself from more than it can do.
    #[serde(default)]
    pub shed: ShedConfig,
    /// What is answered, and how.
    pub routes: Vec<RouteConfig>,
    /// How the gateway stops.
    #[serde(default)]
    pub drain: DrainConfig,
    /// What is logged.
    #[serde(default)]
    pub log: LogConfig,
    /// Traces, sent to a collector. Without it none are.
    #[serde(default)]
    pub traces: Option<TracesConfig>,
    /// What all scripts share: their state, what runs them.
    #[serde(default)]
    pub scripts: script_runtime::ScriptsConfig,
    /// The query runtime: threads, pools, caches.
    #[serde(default)]
    pub runtime: query::RuntimeConfig,
    /// What starts the workers of scripts confined: who builds the gateway knows it.
    #[serde(skip)]
    pub launcher: Option<script_runtime::Launcher>,
    /// Where each field stands in the file.
    #[serde(skip)]
    pub source: Source,
}

/// Reads a file that the operator names, as far as one would be written by hand: `/dev/zero` has no end.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    read_mib(path, 1)
}

/// The same for what programs write: a supergraph of a large house has megabytes.
pub(crate) fn read_long_file(path: &Path) -> io::Result<String> {
    read_mib(path, 32)
}

fn read_mib(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let size = File::open(path)?.take((most << 20) + 1).read_to_string(&mut text)?;
    if size as u64 > most << 20 {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} MiB")));
    }
    Ok(text)
}

/// One route: a path and exactly one way of answering.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The path; `/*` at its end stands for everything below.
    pub path: String,
    /// Run the programs that clients send.
    #[serde(default)]
    pub query: Option<query::QueryConfig>,
    /// Pass the request on to a service.
    #[serde(default)]
    pub proxy: Option<ProxyConfig>,
    /// Answer by a service written in S.
    #[serde(default)]
    pub script: Option<script_runtime::ScriptConfig>,
    /// Answer by what several services say, put together as a file declares. Parts of the path in braces are inputs:
    /// `/buyers/{id}`.
    #[serde(default)]
    pub aggregate: Option<aggregate::AggregateConfig>,
    /// Answer GraphQL: over services, REST and GraphQL alike, in one schema.
    #[serde(default)]
    pub graphql: Option<graphql::GraphqlConfig>,
    /// Proxy-Wasm modules that every request of this route goes through, and every answer.
    #[serde(default)]
    pub filters: Vec<filter::FilterConfig>,
    /// Who may call this route from other origins.
    #[serde(default)]
    pub cors: Option<CorsConfig>,
    /// Whether answers of this route are compressed, and how: instead of what stands under `compress`.
    #[serde(default)]
    pub compress: Option<CompressConfig>,
    /// Whether JSON answers leave deduplicated for clients that ask for it, by `Accept`.
    #[serde(default = "RouteConfig::default_dedup")]
    pub dedup: bool,
    /// Whether callers have to say who they are. By default they have to once the config knows any
    /// callers, unless `rights` has a row `anonymous`.
    #[serde(default)]
    pub auth: Option<AuthRule>,
    /// What a request on this route may take, whichever way it is answered.
    #[serde(default)]
    pub limits: LimitsConfig,
}

/// Whether callers have to say who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthRule {
    /// Without credentials the answer is 401.
    Required,
    /// Who brings none has the row `anonymous`.
    Optional,
}

/// Where a request is passed on to: a service's name, or more than that.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProxyConfig {
    /// Just the service.
    Service(String),
    /// The service and how.
    More(ProxyOptions),
}

/// How a request is passed on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyOptions {
    /// The service's name.
    pub service: String,
    /// On a route with `/*`: pass on the whole path, and not only what the `*` stands for.
    #[serde(default)]
    pub keep_prefix: bool,
}

/// What one request may take.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// The largest body of a request.
    pub body: Bytes,
    /// How fast a body has to come before its answer begins, in bytes a second. Clients are waited for 30 s
    /// at a time, and in all for 30 s and a second for each so many bytes; with `0` only at a time, for
    /// streams of messages.
    pub body_rate: Bytes,
    /// How long the answer may take to begin.
    pub deadline: Duration,
}

/// How the gateway stops.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainConfig {
    /// How long requests are still taken after SIGTERM while `/readyz` says no already, so that load
    /// balancers notice and nobody finds the door closed. Ctrl-C skips it.
    pub delay: Duration,
    /// How long requests that are under way then may still take.
    pub timeout: Duration,
}

/// What is logged.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A line for each request.
    pub access: bool,
}

impl Config {
    /// The config of `orfa dev`: a query route over these services, open to pages on this machine.
    ///
    /// # Errors
    /// Names and URLs come from the command line and can be wrong like those of a file.
    pub fn dev(services: &[(String, String)], port: u16) -> Result<Self, Vec<Mistake>> {
        let names: Vec<&String> = services.iter().map(|(name, _)| name).collect();
        let urls = services.iter().map(|(name, url)| (name.clone(), json!({ "url": url })));
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*", "https://localhost:*"];
        let value = json!({
            "listen": format!("127.0.0.1:{port}"),
            "admin": Self::ADMIN_OFF,
            "services": urls.collect::<serde_json::Map<_, _>>(),
            "cors": { "origins": origins },
            // A developer's machine compiles beside it: that is no overload.
            "shed": { "automatic": false },
            "routes": [{ "path": "/query", "query": { "services": names } }],
        });
        finish(value, Source::new(Path::new("command line")), Vec::new())
    }

    /// The same with a further route, which an aggregate answers.
    ///
    /// # Errors
    /// When the path is none.
    pub fn with_aggregate(mut self, path: &str, file: &Path) -> Result<Self, serde_json::Error> {
        let route = json!({ "path": path, "aggregate": file });
        self.routes.push(serde_json::from_value(route)?);
        Ok(self)
    }

    /// Every file that a field names is watched: the sections' own lists join here.
    fn note_files(&mut self) {
        let documents = self.services.values().filter_map(|service| service.openapi.as_deref());
        documents.for_each(|document| self.source.note_file(document));
        let tls = self.services.values().filter_map(|service| service.tls.as_ref());
        tls.flat_map(|tls| tls.files()).for_each(|file| self.source.note_file(file));
        let filters = self.routes.iter().flat_map(|route| &route.filters);
        filters.for_each(|filter| self.source.note_file(&filter.wasm));
        self.note_stored();
        self.note_scripts();
        self.note_aggregates();
        for file in crate::graphqls::watched(self) {
            self.source.note_path(file);
        }
        let keys = self.auth.jwt.as_ref().and_then(|jwt| jwt.jwks.as_deref());
        keys.filter(|keys| !crate::identity::config::is_url(keys))
            .iter()
            .for_each(|keys| self.source.note_file(keys));
    }

    /// Scripts, and the files that they import.
    fn note_scripts(&mut self) {
        let scripts = self.routes.iter().filter_map(|route| route.script.as_ref());
        for file in scripts.map(|script| script.options().file).collect::<Vec<_>>() {
            self.source.note_file(&file);
            let imported = crate::scripts::imported(&self.source.folder().join(file));
            imported.into_iter().for_each(|file| self.source.note_path(file));
        }
    }

    /// Declarations of aggregates, and the files that fill in values of theirs.
    fn note_aggregates(&mut self) {
        let folder = self.source.folder().to_owned();
        let aggregates = self.routes.iter().filter_map(|route| route.aggregate.as_ref());
        let files: Vec<_> =
            aggregates.flat_map(|aggregate| beside::files(&folder.join(aggregate.file()))).collect();
        files.into_iter().for_each(|file| self.source.note_path(file));
    }

    /// Stored programs, and the folders that hold them, where new ones may come.
    fn note_stored(&mut self) {
        let folder = self.source.folder().to_owned();
        let queries = self.routes.iter().filter_map(|route| route.query.as_ref());
        for file in
            queries.flat_map(|query| &query.stored).flat_map(|list| query::stored_files(&folder, list))
        {
            file.parent().into_iter().for_each(|folder| self.source.note_path(folder.to_owned()));
            self.source.note_path(file);
        }
    }

    /// What `admin` says where there is to be no such listener.
    pub(crate) const ADMIN_OFF: &str = "off";
    /// Where the admin listener is unless the config says otherwise.
    pub(crate) const DEFAULT_ADMIN: &str = "127.0.0.1:9090";

    fn default_client_ip_header() -> String {
        "x-forwarded-for".to_owned()
    }

    fn default_listen() -> ListenConfig {
        ListenConfig::at("127.0.0.1:8080")
    }
}

impl RouteConfig {
    fn default_dedup() -> bool {
        true
    }

    /// The path in the normal form that requests are compared in.
    pub(crate) fn normal_path(&self) -> Cow<'_, str> {
        services::path::normal_form(&self.path).map_or(Cow::Borrowed(self.path.as_str()), Cow::Owned)
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

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            body: Bytes(64 << 20),
            body_rate: Bytes(500),
            deadline: Duration(std::time::Duration::from_secs(60)),
        }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), timeout: Duration::from_secs(30) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { access: true }
    }
}

/// A config file as it was read.
#[derive(Debug)]
pub struct Reading {
    /// What it says, or all its mistakes in the order of the file.
    pub config: Result<Config, Vec<Mistake>>,
    /// The files that it was, or should have been, made of. Whoever waits for a better config watches them.
    pub files: Vec<PathBuf>,
}

/// Reads the config file.
///
/// # Errors
/// All its mistakes, in the order of the file.
pub fn read(file: &Path) -> Result<Config, Vec<Mistake>> {
    read_watched(file).config
}

/// The same for whoever reads it again later.
#[must_use]
pub fn read_watched(file: &Path) -> Reading {
    match read_file(file) {
        Ok(text) => read_document(&text, file),
        Err(error) => {
            let mistake = Source::new(file).mistake("", format!("cannot be read: {error}"), None);
            Reading { config: Err(vec![mistake]), files: vec![file.to_owned()] }
        }
    }
}

/// Reads a config from its text; `file` is its name in mistakes, and relative paths start beside it.
///
/// # Errors
/// All its mistakes, in the order of the file.
pub fn read_text(text: &str, file: &Path) -> Result<Config, Vec<Mistake>> {
    read_document(text, file).config
}

fn read_document(text: &str, file: &Path) -> Reading {
    let mut document = match yaml::read(text, file) {
        Ok(document) => document,
        Err(mistake) => return Reading { config: Err(vec![mistake]), files: vec![file.to_owned()] },
    };
    document.source.note_text(text);
    let files = document.source.files().to_vec();
    match finish(document.value, document.source, document.mistakes) {
        Ok(mut config) => {
            config.note_files();
            Reading { files: config.source.files().to_vec(), config: Ok(config) }
        }
        Err(mistakes) => Reading { config: Err(mistakes), files },
    }
}

fn finish(value: Value, source: Source, mut mistakes: Vec<Mistake>) -> Result<Config, Vec<Mistake>> {
    // Where a value could not even be filled in, nothing more is to be said of it.
    let unfilled: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    let found = schema::validate(&value, &source, &schema()).into_iter().chain(check::check(&value, &source));
    mistakes.extend(found.filter(|mistake| !unfilled.contains(&(mistake.line, mistake.column))));
    beside::deserialised::<Config>(value, &source, mistakes).map(|config| Config { source, ..config })
}

/// What the schema let through and a type refused.
fn undeserialised(error: &serde_path_to_error::Error<serde_json::Error>, source: &Source) -> Mistake {
    use serde_path_to_error::Segment;
    let pointer = error.path().iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => json::pointer::below(&pointer, key),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    });
    let message =
        if source.is_hidden(&pointer) { "the value is wrong".into() } else { error.inner().to_string() };
    source.mistake(&pointer, message, None)
}
