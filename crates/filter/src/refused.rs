//! Why a filter can't be had: what `orfa check` and a reload say, each with a stable code.

use services::ConfigProblem;

/// A filter that was refused, and where it stands.
#[derive(Debug, thiserror::Error)]
#[error("{reason} ({})", .reason.code())]
pub struct Refused {
    /// Where it stands, as a JSON Pointer below the route's `filters`: `/0/wasm`.
    pub pointer: String,
    /// Why.
    pub reason: Reason,
}

/// Why a filter was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The file can't be read.
    #[error("the module can't be read: {0}")]
    Unreadable(String),
    /// Not WebAssembly, or not what this engine runs.
    #[error("the module does not load: {0}")]
    Malformed(String),
    /// It exports no `proxy_abi_version_...` that is known.
    #[error("the module is for no Proxy-Wasm ABI that is known here: 0.1.0, 0.2.0, 0.2.1")]
    Abi,
    /// It imports what no host function is.
    #[error("the module can't be linked: {0}")]
    Import(String),
    /// It exports no memory.
    #[error("the module exports no memory")]
    Memory,
    /// It exports neither `proxy_on_memory_allocate` nor `malloc`.
    #[error("the module exports neither `proxy_on_memory_allocate` nor `malloc`")]
    Allocator,
    /// A callback has another type than the ABI says.
    #[error("the module's `{0}` has another type than the ABI says")]
    Signature(&'static str),
    /// It trapped while it started, or ran out of time or memory.
    #[error("the module failed to start: {0}")]
    Start(String),
    /// `proxy_on_vm_start` returned false.
    #[error("the module refused to start: `proxy_on_vm_start` returned false")]
    VmStart,
    /// `proxy_on_configure` returned false.
    #[error("the module refused its configuration: `proxy_on_configure` returned false")]
    Configure,
    /// A service that the config does not have.
    #[error("there is no service `{0}`")]
    Service(String),
    /// What opens no hosts.
    #[error("{0}")]
    Host(String),
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "filter-module-unreadable",
            Self::Malformed(_) => "filter-module-malformed",
            Self::Abi => "filter-module-abi",
            Self::Import(_) => "filter-module-import",
            Self::Memory => "filter-module-memory",
            Self::Allocator => "filter-module-allocator",
            Self::Signature(_) => "filter-module-signature",
            Self::Start(_) => "filter-start-failed",
            Self::VmStart => "filter-start-refused",
            Self::Configure => "filter-config-refused",
            Self::Service(_) => "filter-service-unknown",
            Self::Host(_) => "filter-host-invalid",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "The path is relative to the config.",
            Self::Malformed(_) => "It has to be a core WebAssembly module, not text and not a component.",
            Self::Abi | Self::Allocator | Self::Memory | Self::Signature(_) => {
                "Build it with one of the Proxy-Wasm SDKs: Go, Rust, AssemblyScript, C++."
            }
            Self::Import(_) => "Only the functions of Proxy-Wasm and WASI preview 1 are there.",
            Self::Start(_) | Self::VmStart | Self::Configure => "The module's own log lines may say why.",
            Self::Service(_) => "Name one of the config's services.",
            Self::Host(_) => "Write `auth.internal:8080`, `*.example.org` or `10.0.0.0/8`, or leave it out.",
        }
    }

    /// Which field of the filter's config is to blame.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::Start(_) | Self::Configure => "/config",
            Self::VmStart => "/vm_config",
            Self::Service(_) => "/services",
            Self::Host(_) => "/hosts",
            _ => "/wasm",
        }
    }
}

impl From<Refused> for ConfigProblem {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        Self { pointer: refused.pointer, message, hint: refused.reason.hint().to_owned() }
    }
}
