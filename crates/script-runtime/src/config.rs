//! What an operator writes of S services: the struct under a route's `script:`, and `scripts:`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use services::{Bytes, Duration};

/// A route that an S service answers: the file, or more than that.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ScriptConfig {
    /// Just the file, which has one service: `shop.sjs`. A path relative to the config.
    File(PathBuf),
    /// The file and how its service runs.
    More(Box<ScriptOptions>),
}

/// An S service, and how it runs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptOptions {
    /// The file: a path relative to the config.
    pub file: PathBuf,
    /// Which of its services, where it has several. The name is also the key of its state, so that each service is
    /// deployed on one route only.
    #[serde(default)]
    pub service: Option<String>,
    /// The hosts that it may call beside the services: `pages.internal:8080`, `*.example.org`, `10.0.0.0/8`; without a
    /// port, at every port. Where a `*` leads to an address that is not public, nothing is sent, unless a network
    /// here holds it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Make a warning of service-level state under two different paths an error, as the language's paper has it.
    #[serde(default)]
    pub strict_paths: bool,
    /// The caps of each run of a handler.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// How many processes run it.
    #[serde(default)]
    pub workers: WorkersConfig,
    /// The resources that it may create at run time.
    #[serde(default)]
    pub resources: ResourcesConfig,
    /// How much it may keep.
    #[serde(default)]
    pub state: StateConfig,
    /// Tell in `S-State-Version` which version of the state a handler saw or made: for tests and debugging.
    #[serde(default)]
    pub show_versions: bool,
}

/// The caps of each run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// CPU time without a pause. What takes longer ends with its worker.
    pub time: Duration,
    /// Time from its beginning to its end, with all that it waits for. The route's `limits.deadline` bounds an answer's
    /// beginning besides.
    pub wall: Duration,
    /// Resource calls.
    pub calls: u32,
    /// Calls to services and hosts under way at once; further ones wait.
    #[schemars(range(min = 1))]
    pub parallel: u32,
    /// Bytes from services and hosts, after decompression.
    pub received: Bytes,
    /// Bytes of a request's body.
    pub body: Bytes,
}

/// How many processes run a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// As many there are always.
    #[schemars(range(min = 1, max = 256))]
    pub least: u32,
    /// As many there are when all are busy. Without a number: as many as there are cores.
    #[schemars(range(min = 1, max = 256))]
    pub most: Option<u32>,
}

/// The resources that a service may create at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourcesConfig {
    /// As many there are at once.
    pub most: u64,
    /// How long each that is made from now on stays. Without it: until it is deleted.
    pub ttl: Option<Duration>,
}

/// How much a service may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Bytes of its whole state. Each value counts its JSON text, its key and 64 bytes more; each resource that was made at run
    /// time what it captured, its path twice and 320 bytes more. A write that would make the state larger than this is refused; a
    /// write that makes it smaller never is.
    pub size: Bytes,
}

/// What all S services share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptsConfig {
    /// The folder in which state is kept (mode 0700; made where there is none): a path relative to the config. It can't
    /// be that of a script, and is better not within one.
    pub state: PathBuf,
    /// What a change has outlasted before its answer leaves.
    pub durability: Durability,
    /// What runs the workers: `node`, `bun`, `deno`, or a command of your own.
    pub engine: EngineConfig,
    /// The heap of each worker.
    pub memory: Bytes,
    /// Processes of all scripts together.
    #[schemars(range(min = 1, max = 1024))]
    pub workers: u32,
    /// Calls between resources under way at once, of all scripts together.
    #[schemars(range(min = 1))]
    pub internal_calls: u32,
}

/// What a change has outlasted before its answer leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The sudden end of any process.
    #[default]
    Process,
    /// The loss of power, too.
    Machine,
}

/// What runs the workers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EngineConfig {
    /// One that is known.
    Known(Engine),
    /// A command and its arguments; the worker's file, the socket and a number are put behind them.
    Command(#[schemars(length(min = 1))] Vec<String>),
}

/// An engine that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Node.js, 20 or newer.
    Node,
    /// Bun.
    Bun,
    /// Deno.
    Deno,
}

impl ScriptConfig {
    /// With all that is not written as it is by default.
    #[must_use]
    pub fn options(&self) -> ScriptOptions {
        match self {
            Self::File(file) => ScriptOptions {
                file: file.clone(),
                service: None,
                hosts: Vec::new(),
                strict_paths: false,
                limits: LimitsConfig::default(),
                workers: WorkersConfig::default(),
                resources: ResourcesConfig::default(),
                state: StateConfig::default(),
                show_versions: false,
            },
            Self::More(options) => (**options).clone(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(1),
            wall: Duration::from_secs(30),
            calls: 1000,
            parallel: 64,
            received: Bytes(64 << 20),
            body: Bytes(1 << 20),
        }
    }
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self { least: 1, most: None }
    }
}

impl Default for ResourcesConfig {
    fn default() -> Self {
        Self { most: 100_000, ttl: None }
    }
}

impl Default for StateConfig {
    fn default() -> Self {
        Self { size: Bytes(256 << 20) }
    }
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self {
            state: "state".into(),
            durability: Durability::Process,
            engine: EngineConfig::Known(Engine::Node),
            memory: Bytes(256 << 20),
            workers: 32,
            internal_calls: 100_000,
        }
    }
}
