//! The configuration of S services: the section `script:` of a route, and the section `scripts:`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, CallLimits, DurationConfig};

/// An S service that handles a route: its file, or an object with options.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ScriptConfig {
    /// The file, relative to the config. It must contain exactly one service: `shop.sjs`.
    File(PathBuf),
    /// The file and the options of its service.
    More(Box<ScriptOptions>),
}

/// An S service and its options.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptOptions {
    /// The script's file: a path relative to the config.
    pub file: PathBuf,
    /// The name of the service, required if the file contains several. The name is also the key of the
    /// service's state, so each service can be deployed on one route only.
    #[serde(default)]
    pub service: Option<String>,
    /// Hosts that the service may call besides the configured services: `pages.internal:8080`,
    /// `*.example.org`, `10.0.0.0/8`. Without a port, every port is allowed. If a name that matches a `*`
    /// pattern resolves to a non-public address, nothing is sent, unless a network in this list contains the
    /// address.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Reports service-level state under two different paths as an error instead of a warning, as the
    /// language's paper does.
    #[serde(default)]
    pub strict_paths: bool,
    /// Limits of each run of a handler.
    #[serde(default)]
    pub limits: ScriptLimitsConfig,
    /// The number of worker processes.
    #[serde(default)]
    pub workers: WorkersConfig,
    /// Limits for the resources that the service creates at run time.
    #[serde(default)]
    pub resources: ResourcesConfig,
    /// Limits of the service's state.
    #[serde(default)]
    pub state: StateConfig,
    /// Adds the header `S-State-Version` with the version of the state that a handler read or wrote. For
    /// tests and debugging.
    #[serde(default)]
    pub show_versions: bool,
}

/// Limits of each run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptLimitsConfig {
    /// CPU time without a pause. A run that exceeds it is ended together with its worker.
    pub cpu: DurationConfig,
    /// Total duration of a run, including everything that it waits for. The route's `limits.timeout`
    /// additionally limits the time until the response begins.
    pub timeout: DurationConfig,
    /// Number of resource calls.
    pub calls: u32,
    /// Concurrent calls to services and hosts; further calls wait.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// Bytes received from services and hosts, after decompression.
    pub upstream_bytes: BytesConfig,
    /// Bytes of the request body.
    pub request_body: BytesConfig,
}

/// The number of worker processes of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// Minimum number of workers.
    #[schemars(range(min = 1, max = 256))]
    pub min: u32,
    /// Maximum number of workers, used when all are busy. Default: the number of cores.
    #[schemars(range(min = 1, max = 256))]
    pub max: Option<u32>,
}

/// Limits for the resources that a service creates at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourcesConfig {
    /// Maximum number of resources that exist at the same time.
    pub max: u64,
    /// Time to live of each resource that is created from now on. Without it, a resource exists until it is
    /// deleted.
    pub ttl: Option<DurationConfig>,
}

/// Limits of a service's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Maximum size of the whole state in bytes. Each value counts as its JSON text, its key and 64 bytes;
    /// each resource created at run time counts as its captured values, its path twice and 320 bytes. A write
    /// that would grow the state beyond this limit is refused; a write that shrinks the state is always
    /// accepted.
    pub size: BytesConfig,
}

/// Settings that all S services share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptsConfig {
    /// The folder in which state is stored (mode 0700, created if missing): a path relative to the config. It
    /// must not be the folder of a script, and should not be inside one.
    pub state_dir: PathBuf,
    /// The failures that a change must survive before its response is sent.
    pub durability: StateDurability,
    /// The engine of the workers: `node`, `bun`, `deno`, or a custom command.
    pub engine: EngineConfig,
    /// Heap size limit of each worker.
    pub memory: BytesConfig,
    /// Maximum number of worker processes of all scripts together.
    #[schemars(range(min = 1, max = 1024))]
    pub workers: u32,
    /// Maximum number of concurrent calls between resources, of all scripts together.
    #[schemars(range(min = 1))]
    pub internal_calls: u32,
}

/// The failures that a change must survive before its response is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateDurability {
    /// A crash of any process.
    #[default]
    Process,
    /// Loss of power as well.
    Machine,
}

/// The engine of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EngineConfig {
    /// A supported engine.
    Known(WorkerEngine),
    /// A command and its arguments; the path of the worker's file, the sockets and the worker's number are
    /// appended.
    Command(#[schemars(length(min = 1))] Vec<String>),
}

/// A supported engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerEngine {
    /// Node.js, 20 or newer.
    Node,
    /// Bun.
    Bun,
    /// Deno.
    Deno,
}

impl ScriptConfig {
    /// Returns the options, with defaults for everything that is not configured.
    #[must_use]
    pub fn options(&self) -> ScriptOptions {
        match self {
            Self::File(file) => ScriptOptions {
                file: file.clone(),
                service: None,
                hosts: Vec::new(),
                strict_paths: false,
                limits: ScriptLimitsConfig::default(),
                workers: WorkersConfig::default(),
                resources: ResourcesConfig::default(),
                state: StateConfig::default(),
                show_versions: false,
            },
            Self::More(options) => (**options).clone(),
        }
    }
}

impl ScriptLimitsConfig {
    /// Returns the limits of the upstream calls of a request.
    pub(crate) fn call_limits(&self) -> CallLimits {
        CallLimits {
            timeout: self.timeout.0,
            calls: self.calls,
            upstream_bytes: self.upstream_bytes.0,
            concurrency: self.concurrency as usize,
        }
    }
}

impl Default for ScriptLimitsConfig {
    fn default() -> Self {
        Self {
            cpu: DurationConfig::from_secs(1),
            timeout: DurationConfig::from_secs(30),
            calls: 1000,
            concurrency: 64,
            upstream_bytes: BytesConfig(64 << 20),
            request_body: BytesConfig(1 << 20),
        }
    }
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self { min: 1, max: None }
    }
}

impl Default for ResourcesConfig {
    fn default() -> Self {
        Self { max: 100_000, ttl: None }
    }
}

impl Default for StateConfig {
    fn default() -> Self {
        Self { size: BytesConfig(256 << 20) }
    }
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self {
            state_dir: "state".into(),
            durability: StateDurability::Process,
            engine: EngineConfig::Known(WorkerEngine::Node),
            memory: BytesConfig(256 << 20),
            workers: 32,
            internal_calls: 100_000,
        }
    }
}
