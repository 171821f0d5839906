//! Reasons for which a filter is refused, as `orfa check` and a reload report them, each with a stable code.

use diagnostics::Diagnostic;

/// A refused filter, with its position.
#[derive(Debug, thiserror::Error)]
#[error("{reason} ({})", .reason.code())]
pub struct RefusedFilter {
    /// The position as a JSON Pointer below the route's `filters`: `/0/wasm`.
    pub pointer: String,
    /// The reason.
    pub reason: FilterRefusalReason,
}

/// The reason for which a filter was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterRefusalReason {
    /// The file can't be read.
    #[error("the module can't be read: {0}")]
    Unreadable(String),
    /// The file is not WebAssembly, or not supported by this engine.
    #[error("the module does not load: {0}")]
    Malformed(String),
    /// The module exports no `proxy_abi_version_...` of a supported version.
    #[error("the module implements none of the supported Proxy-Wasm ABIs: 0.1.0, 0.2.0, 0.2.1")]
    Abi,
    /// The module imports a function that the host does not have.
    #[error("the module can't be linked: {0}")]
    Import(String),
    /// The module exports no memory.
    #[error("the module exports no memory")]
    Memory,
    /// The module exports neither `proxy_on_memory_allocate` nor `malloc`.
    #[error("the module exports neither `proxy_on_memory_allocate` nor `malloc`")]
    Allocator,
    /// The type of a callback differs from the ABI.
    #[error("the module's `{0}` has a type that differs from the ABI")]
    Signature(&'static str),
    /// The module trapped while it started, or exceeded its time or memory.
    #[error("the module failed to start: {0}")]
    Start(String),
    /// `proxy_on_vm_start` returned false.
    #[error("the module refused to start: `proxy_on_vm_start` returned false")]
    VmStart,
    /// `proxy_on_configure` returned false.
    #[error("the module refused its configuration: `proxy_on_configure` returned false")]
    Configure,
    /// A service is not in the config.
    #[error("there is no service `{0}`")]
    Service(String),
    /// An entry of `hosts` is invalid.
    #[error("{0}")]
    Host(String),
}

impl FilterRefusalReason {
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

    /// Advice on how to fix it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "The path is relative to the config.",
            Self::Malformed(_) => "It has to be a core WebAssembly module, not text and not a component.",
            Self::Abi | Self::Allocator | Self::Memory | Self::Signature(_) => {
                "Build it with one of the Proxy-Wasm SDKs: Go, Rust, AssemblyScript, C++."
            }
            Self::Import(_) => "Only the functions of Proxy-Wasm and WASI preview 1 are available.",
            Self::Start(_) | Self::VmStart | Self::Configure => {
                "The module's own log lines may give the reason."
            }
            Self::Service(_) => "Name one of the config's services.",
            Self::Host(_) => "Write `auth.internal:8080`, `*.example.org` or `10.0.0.0/8`, or leave it out.",
        }
    }

    /// The field of the filter's config that is wrong.
    pub(crate) fn config_pointer(&self) -> &'static str {
        match self {
            Self::Start(_) | Self::Configure => "/config",
            Self::VmStart => "/vm_config",
            Self::Service(_) => "/services",
            Self::Host(_) => "/hosts",
            _ => "/wasm",
        }
    }
}

impl From<RefusedFilter> for Diagnostic {
    fn from(refused: RefusedFilter) -> Self {
        let message = refused.to_string();
        Self::new(refused.pointer, message, refused.reason.hint())
    }
}
