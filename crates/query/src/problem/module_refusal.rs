//! The errors of modules that are rejected before they are compiled.

use query_abi::{ENTRY, MEMORY, layout};

/// The reason why a module is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModuleRefusal {
    /// Truncated, wrong magic bytes or invalid code.
    #[error("the module is not valid WebAssembly: {0}")]
    Malformed(String),
    /// A component rather than a core module.
    #[error("this is a component; a query is a core module")]
    Component,
    /// An import that neither the host nor the environment provides.
    #[error("the module imports `{module}` `{name}`, which does not exist")]
    Import { module: String, name: String },
    /// An import whose type differs from the export's.
    #[error("the module imports `{module}` `{name}` with a type other than the exported one")]
    ImportType { module: String, name: String },
    /// Imports from another kind or version of environment.
    #[error("there is no environment `{0}`")]
    Environment(String),
    /// A memory in addition to the environment's.
    #[error("the module defines a memory, but its environment provides one")]
    OwnMemory,
    /// A table in addition to the environment's.
    #[error("the module defines a table, but its environment provides one")]
    OwnTable,
    /// Neither an environment nor a memory.
    #[error("the module has no memory, and imports no environment that provides one")]
    NoMemory,
    /// A memory that is not exported.
    #[error("the module does not export its memory as `{MEMORY}`")]
    HiddenMemory,
    /// A data segment outside of the query's region.
    #[error("data segment {index} is at {start} to {end}, outside of the query's region {} to {}",
        layout::QUERY_DATA.start, layout::QUERY_DATA.end)]
    DataRegion { index: u32, start: u64, end: u64 },
    /// An element segment outside of the query's slots.
    #[error("element segment {index} fills table slots {start} to {end}, outside of the query's slots {} to {}",
        layout::QUERY_TABLE.start, layout::QUERY_TABLE.end)]
    TableRegion { index: u32, start: u64, end: u64 },
    /// A segment with a computed offset.
    #[error("{what} segment {index} has no constant offset")]
    Offset { what: &'static str, index: u32 },
    /// An item count that would take too long to compile.
    #[error("the module has {found} {what}, and at most {limit} are compiled")]
    Complexity { what: &'static str, found: u64, limit: u64 },
    /// A total that would take too long to compile.
    #[error("the module would take too long to compile")]
    CompileCost,
    /// No entry point.
    #[error("the module exports no function `{ENTRY}`")]
    NoEntry,
    /// An entry point with the wrong type.
    #[error("`{name}` has the type {found}, not {expected}")]
    Signature { name: &'static str, found: String, expected: &'static str },
}

impl ModuleRefusal {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Component => "module-malformed",
            Self::Import { .. } | Self::ImportType { .. } => "module-import",
            Self::Environment(_) => "module-environment",
            Self::OwnMemory | Self::NoMemory | Self::HiddenMemory => "module-memory",
            Self::OwnTable => "module-table",
            Self::DataRegion { .. } => "module-data-region",
            Self::TableRegion { .. } => "module-table-region",
            Self::Offset { .. } => "module-segment-offset",
            Self::Complexity { .. } | Self::CompileCost => "module-complexity",
            Self::NoEntry => "module-no-entry",
            Self::Signature { .. } => "module-signature",
        }
    }

    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Import { .. } | Self::ImportType { .. } => {
                "import only from `orfa` and from the environment; `orfa query build` checks it"
            }
            Self::DataRegion { .. } => {
                "a query has 64 KiB for its data: keep large tables in the input or on the heap"
            }
            Self::Complexity { .. } | Self::CompileCost => {
                "split the largest parts, and let the compiler optimise (`-Os`)"
            }
            Self::NoEntry | Self::Signature { .. } => "export `void orfa(const void *input, int len)`",
            Self::Environment(_) => {
                "this gateway offers `env:c@1`; build the query with its own version's `orfa query build`"
            }
            _ => "",
        }
    }
}
