//! Query settings: a route's `query:` section with cache modes, recordings and limits, and `runtime:`.

use std::path::PathBuf;

use handler::CallerLimits;
use offload::OffloadConfig;
use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, CallerId, DurationConfig};

/// A route that runs query programs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryConfig {
    /// The services that programs may call, by name. Other hosts can't be reached.
    #[schemars(length(min = 1))]
    pub services: Vec<String>,
    /// The methods that programs may use. Default: the safe ones, `GET` and `HEAD`.
    #[serde(default = "safe_methods")]
    pub methods: Vec<String>,
    /// The programs that the route runs.
    #[serde(default)]
    pub programs: AllowedPrograms,
    /// The recording settings, for requests with `ORFA-Debug`. Without them, no runs are recorded.
    pub recordings: Option<RecordingPolicy>,
    /// Files with the operator's programs, relative to the config; `*` matches any name: `./queries/*`.
    /// Clients call each by its name below the route's path, or as `NAME@HASH`.
    #[serde(default)]
    pub stored: Vec<String>,
    /// The ways in which programs may be reused between requests. `instance` keeps the instance of a program
    /// that promises to be stateless, separately for each client.
    #[serde(default = "code_mode")]
    pub modes: Vec<CacheMode>,
    /// The limits of each run. A client can lower them with `ORFA-Limit`, but not raise them.
    #[serde(default)]
    pub limits: QueryLimitsConfig,
}

/// The programs that a route runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllowedPrograms {
    /// Any program.
    #[default]
    Any,
    /// Programs signed by a key under `trust:`.
    Signed,
    /// Only the programs under `stored:`.
    Stored,
}

impl AllowedPrograms {
    /// Returns the value's spelling in the config.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Signed => "signed",
            Self::Stored => "stored",
        }
    }
}

/// A way of caching programs between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// Cache the compiled code, for requests that send a token or the program's hash.
    Code,
    /// Keep an instance alive, for one caller.
    Instance,
}

impl CacheMode {
    pub(crate) const ALL: [Self; 2] = [Self::Code, Self::Instance];

    /// Returns the mode with this word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// Returns the word in the header and the config.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Instance => "instance",
        }
    }
}

/// The callers that may have runs of a query route recorded, and the size limit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingPolicy {
    /// The callers that may record, by name; `anyone` for all. A recording contains only data that its
    /// program could have answered with, so it reveals nothing that the caller could not query anyway.
    #[schemars(length(min = 1))]
    pub callers: Vec<String>,
    /// The keys whose signed programs may be recorded, by name. Runs of programs signed by other keys, and of
    /// stored programs, are never recorded.
    #[serde(default)]
    pub keys: Vec<String>,
    /// The maximum size of a recording. A run that exceeds it ends with `recording-too-large`.
    #[serde(default = "recording_size")]
    pub size: BytesConfig,
}

/// The name in [`RecordingPolicy::callers`] that matches every caller.
pub const ANYONE: &str = "anyone";

impl RecordingPolicy {
    /// Whether runs of this caller may be recorded.
    pub(crate) fn allows_caller(&self, caller: &CallerId) -> bool {
        self.callers.iter().any(|name| match caller {
            _ if name == ANYONE => true,
            CallerId::Named(caller) => **caller == **name,
            CallerId::Subject(_) | CallerId::Anonymous => false,
        })
    }

    /// Whether runs of programs that are unsigned or signed by `key` may be recorded.
    pub(crate) fn allows_key(&self, key: Option<&str>) -> bool {
        key.is_none_or(|key| self.keys.iter().any(|name| name == key))
    }
}

/// The limits of a route's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryLimitsConfig {
    /// The CPU time of a program, including host functions.
    pub cpu: DurationConfig,
    /// The time from the first byte of the request to the answer.
    pub timeout: DurationConfig,
    /// The memory of a program, including the memory that the gateway uses for it.
    pub memory: BytesConfig,
    /// The number of upstream calls.
    pub calls: u32,
    /// The number of concurrent upstream calls. Further calls wait.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// The bytes received from upstream services, after decompression.
    pub upstream_bytes: BytesConfig,
    /// The bytes of the answer.
    pub response_body: BytesConfig,
    /// The bytes of a program.
    pub program_bytes: BytesConfig,
    /// The bytes of a request's body (input and program), after decompression.
    pub request_body: BytesConfig,
}

impl QueryLimitsConfig {
    /// Returns these limits, lowered to the caller's where those are smaller.
    pub(crate) fn with_caller_limits(mut self, caller: &CallerLimits) -> Self {
        fn lower<T: Ord + Copy>(cap: &mut T, caller: Option<T>) {
            *cap = caller.map_or(*cap, |caller| caller.min(*cap));
        }
        lower(&mut self.cpu, caller.cpu);
        lower(&mut self.timeout, caller.timeout);
        lower(&mut self.memory, caller.memory);
        lower(&mut self.calls, caller.calls);
        lower(&mut self.concurrency, caller.concurrency);
        lower(&mut self.upstream_bytes, caller.upstream_bytes);
        lower(&mut self.response_body, caller.response_body);
        self
    }
}

impl Default for QueryLimitsConfig {
    fn default() -> Self {
        Self {
            cpu: DurationConfig::from_millis(50),
            timeout: DurationConfig::from_secs(5),
            memory: BytesConfig(16 << 20),
            calls: 200,
            concurrency: 32,
            upstream_bytes: BytesConfig(16 << 20),
            response_body: BytesConfig(4 << 20),
            program_bytes: BytesConfig(query_abi::MODULE_BYTES as u64),
            request_body: BytesConfig(1 << 20),
        }
    }
}

/// Settings of the runtime that all query routes share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// The number of programs of each kind (C, JavaScript, plain WebAssembly) that run concurrently. Further
    /// ones queue. One client has at most half of these slots, and a smaller share while others have some:
    /// it gets another slot only while it has fewer than are free. Each slot keeps some memory ready for the
    /// next program: at most 0.5 MiB for C, 2 MiB for JavaScript. Default: 256, or fewer if the slots would
    /// keep more than half of the control group's `memory.max`. If the address space is too small, the number
    /// is halved until it fits. Each of up to eight threads has its own set of slots if all sets together fit
    /// into that half as well.
    #[schemars(range(min = 1, max = 10000))]
    pub instances: Option<u32>,
    /// The upper bound of every route's memory limit.
    pub memory: BytesConfig,
    /// The memory for compiled programs.
    pub cache: BytesConfig,
    /// A folder for compiled programs, which then survive restarts. It has to belong to the gateway alone
    /// (mode 0700) and is created if missing. Default: compiled programs are lost at a restart.
    pub cache_dir: Option<PathBuf>,
    /// The maximum size of that folder. Each file counts as whole blocks of 4 KiB.
    pub cache_dir_size: BytesConfig,
    /// The secret that program tokens are sealed with, at least 32 characters. Gateways with the same secret
    /// accept each other's tokens. Default: a secret in the folder or, without a folder, one that is lost
    /// when the process ends.
    #[schemars(length(min = 32))]
    pub secret: Option<String>,
    /// The number of programs that are compiled at the same time, on low-priority threads. There is one more
    /// such thread, so that compiling does not delay the other work that clients cause: planning GraphQL
    /// documents, reading and composing long answers. That work uses all threads that do not compile.
    #[schemars(range(min = 1, max = 64))]
    pub compile_threads: u32,
    /// The CPU time on those threads per caller and ten seconds, for new programs and documents. Programs
    /// signed by a key under `trust:` are not counted. Long answers may use eight times as much and wait when
    /// it is used up. Restarts of filters that the caller's requests trapped may use as much, too.
    pub compile_time: DurationConfig,
}

impl RuntimeConfig {
    /// Returns the settings of the pool that compiles programs.
    #[must_use]
    pub fn offload_config(&self) -> OffloadConfig {
        OffloadConfig { threads: self.compile_threads.max(1) as usize + 1, quota: self.compile_time.0 }
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            instances: None,
            memory: BytesConfig(128 << 20),
            cache: BytesConfig(64 << 20),
            cache_dir: None,
            cache_dir_size: BytesConfig(256 << 20),
            secret: None,
            compile_threads: 1,
            compile_time: DurationConfig::from_millis(500),
        }
    }
}

fn code_mode() -> Vec<CacheMode> {
    vec![CacheMode::Code]
}

fn recording_size() -> BytesConfig {
    BytesConfig(4 << 20)
}

fn safe_methods() -> Vec<String> {
    vec!["GET".into(), "HEAD".into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_of_the_pool_never_compiles() {
        for compile_threads in [0, 1, 2] {
            let config = RuntimeConfig { compile_threads, ..RuntimeConfig::default() };
            assert_eq!(config.offload_config().threads, compile_threads.max(1) as usize + 1);
        }
    }
}
