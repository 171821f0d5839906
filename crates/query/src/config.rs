//! What an operator writes of queries: the struct under a route's `query:`, and `runtime:`.

use std::path::PathBuf;

use offload::OffloadConfig;
use schemars::JsonSchema;
use serde::Deserialize;
use services::{Bytes, Duration};

use crate::cached::Mode;
use crate::record::Recordings;

/// A route that answers query programs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// The services that programs may call, by name. Nothing else can be reached.
    #[schemars(length(min = 1))]
    pub services: Vec<String>,
    /// The methods that programs may use. By default the safe ones.
    #[serde(default = "safe_methods")]
    pub methods: Vec<String>,
    /// Whose programs run.
    #[serde(default)]
    pub programs: Programs,
    /// Whose runs are recorded when `ORFA-Debug` asks for it. By default nobody's.
    pub recordings: Option<Recordings>,
    /// Files with programs of your own, relative to the config, `*` for any name: `./queries/*`. Each is
    /// called by its name below the route's path, and as `NAME@HASH`.
    #[serde(default)]
    pub stored: Vec<String>,
    /// How programs may be kept between requests. `instance` lets a program that promises to have no state go on
    /// living, for one client each.
    #[serde(default = "code_mode")]
    pub modes: Vec<Mode>,
    /// The caps. A client can grant less with `ORFA-Limit`, never more.
    #[serde(default)]
    pub limits: LimitsConfig,
}

/// Whose programs run on a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Programs {
    /// Anybody's.
    #[default]
    Any,
    /// Those that a key under `trust:` has signed.
    Signed,
    /// None but those under `stored:`.
    Stored,
}

impl Programs {
    /// As the config has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Signed => "signed",
            Self::Stored => "stored",
        }
    }
}

/// The caps of a route's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// CPU time of the program, host functions included.
    pub cpu: Duration,
    /// Time from the first byte of the request to the answer.
    pub deadline: Duration,
    /// Memory of the program, and of what the gateway holds for it.
    pub memory: Bytes,
    /// Upstream calls.
    pub calls: u32,
    /// Upstream calls under way at once; further ones wait.
    #[schemars(range(min = 1))]
    pub parallel: u32,
    /// Bytes from upstream services, after decompression.
    pub received: Bytes,
    /// Bytes of the answer.
    pub output: Bytes,
    /// Bytes of a program.
    pub program: Bytes,
    /// Bytes of a request's body, input and program, after decompression.
    pub body: Bytes,
}

/// The caps of one caller's programs, beside those of the route: the smaller one holds. What is left out
/// is not limited any further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallerLimits {
    /// CPU time of a program, host functions included.
    pub cpu: Option<Duration>,
    /// Time from the first byte of the request to the answer.
    pub deadline: Option<Duration>,
    /// Memory of a program, and of what the gateway holds for it.
    pub memory: Option<Bytes>,
    /// Upstream calls.
    pub calls: Option<u32>,
    /// Upstream calls under way at once; further ones wait.
    #[schemars(range(min = 1))]
    pub parallel: Option<u32>,
    /// Bytes from upstream services, after decompression.
    pub received: Option<Bytes>,
    /// Bytes of the answer.
    pub output: Option<Bytes>,
}

impl LimitsConfig {
    /// These limits, or the caller's where they are smaller.
    pub(crate) fn and(mut self, caller: &CallerLimits) -> Self {
        fn lower<T: Ord + Copy>(cap: &mut T, caller: Option<T>) {
            *cap = caller.map_or(*cap, |caller| caller.min(*cap));
        }
        lower(&mut self.cpu, caller.cpu);
        lower(&mut self.deadline, caller.deadline);
        lower(&mut self.memory, caller.memory);
        lower(&mut self.calls, caller.calls);
        lower(&mut self.parallel, caller.parallel);
        lower(&mut self.received, caller.received);
        lower(&mut self.output, caller.output);
        self
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            cpu: Duration::from_millis(50),
            deadline: Duration::from_secs(5),
            memory: Bytes(16 << 20),
            calls: 200,
            parallel: 32,
            received: Bytes(16 << 20),
            output: Bytes(4 << 20),
            program: Bytes(query_abi::MODULE_BYTES as u64),
            body: Bytes(1 << 20),
        }
    }
}

/// What all query routes share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// Programs of a kind (C, JavaScript, plain) that run at once; further ones wait for their turn. Each
    /// place keeps some memory ready for the next program: at most 0.5 MiB in C, 2 MiB in JavaScript.
    /// Without a number: 256, or as many as keep no more than half of what the control group's `memory.max`
    /// allows. Where the address space is too small for them, they are halved until they fit. Each thread, up to
    /// eight, has as many places of its own if what they all keep fits into that half, too.
    #[schemars(range(min = 1, max = 10000))]
    pub instances: Option<u32>,
    /// The largest memory that any route may grant.
    pub memory: Bytes,
    /// Memory for compiled programs.
    pub cache: Bytes,
    /// A folder of the gateway's own (mode 0700; made where there is none), where compiled programs outlast
    /// a restart. Without it none do.
    pub folder: Option<PathBuf>,
    /// What that folder may hold.
    pub folder_size: Bytes,
    /// What tokens are sealed with: 32 characters at least. Gateways with the same secret take each other's tokens.
    /// Without it the folder keeps one, or tokens end with the process.
    #[schemars(length(min = 32))]
    pub secret: Option<String>,
    /// Threads of low priority for work that clients cause beside their requests: compiling programs, planning GraphQL
    /// documents, reading and composing long answers.
    #[schemars(range(min = 1, max = 64))]
    pub compile_threads: u32,
    /// How much CPU time of those threads one caller's unseen programs and documents may take in ten seconds; programs
    /// that a key under `trust:` has signed are not counted. Its long answers may take eight times as much, and wait for
    /// it beyond that. Restarts of filters that its requests made trap may take as much, too.
    pub compile_time: Duration,
}

impl RuntimeConfig {
    /// The settings of the pool that programs are compiled by.
    #[must_use]
    pub fn offload(&self) -> OffloadConfig {
        OffloadConfig { threads: self.compile_threads.max(1) as usize, quota: self.compile_time.0 }
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            instances: None,
            memory: Bytes(128 << 20),
            cache: Bytes(64 << 20),
            folder: None,
            folder_size: Bytes(256 << 20),
            secret: None,
            compile_threads: 1,
            compile_time: Duration::from_millis(500),
        }
    }
}

fn code_mode() -> Vec<Mode> {
    vec![Mode::Code]
}

fn safe_methods() -> Vec<String> {
    vec!["GET".into(), "HEAD".into()]
}
