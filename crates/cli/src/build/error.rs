//! Errors of building a query, in terms of its source.
use query_abi::layout;

use crate::output::exit::CliError;

/// The reason why a query could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// clang or wasm-ld is missing.
    #[error("{0}")]
    Toolchain(String),
    /// The source can't be read.
    #[error("{path} can't be read: {error}")]
    Source {
        /// The path.
        path: String,
        /// The cause.
        error: std::io::Error,
    },
    /// The language needs no building.
    #[error("{0} is not a C file; JavaScript and TypeScript are sent unchanged: `orfa call FILE`")]
    Language(String),
    /// clang rejected the program.
    #[error("the program does not compile: {0}")]
    Compile(String),
    /// wasm-ld rejected the object.
    #[error("the program does not link: {0}")]
    Link(String),
    /// The folder for intermediate files failed.
    #[error("the folder for intermediate files failed: {0}")]
    Folder(#[source] std::io::Error),
    /// There is no entry point.
    #[error(
        "the program has no `void orfa(const void *input, int len)`, the function that the gateway calls"
    )]
    NoEntry,
    /// The entry point has another signature.
    #[error("`orfa` has to be `void orfa(const void *input, int len)`, and not {0}")]
    EntrySignature(String),
    /// Data without a definition.
    #[error("undefined data {names}: an environment provides only functions; define it in the program{hint}")]
    UndefinedData {
        /// The symbols, separated by commas.
        names: String,
        /// The hint, if there is one.
        hint: &'static str,
    },
    /// A function that the environment does not have.
    #[error("the environment {environment} has no function `{name}`{hint}")]
    UnknownFunction {
        /// The environment.
        environment: &'static str,
        /// The function.
        name: String,
        /// The most similar name that exists.
        hint: String,
    },
    /// A function whose declaration differs from the environment's.
    #[error(
        "`{name}` is declared as {declared}, but the environment defines it as {promised}: include its header"
    )]
    FunctionSignature {
        /// The function.
        name: String,
        /// Its type in the program.
        declared: String,
        /// Its type in the environment.
        promised: String,
    },
    /// An import other than a host function or a function of the environment.
    #[error("`{0}` can't be imported: only functions of the environment and of `orfa` can")]
    ForeignImport(String),
    /// Too much data.
    #[error(
        "the data of the program is {over} bytes too large: constants and static variables have {room} \
         bytes together; take memory from malloc() or orfa_alloc() instead"
    )]
    DataOverrun {
        /// The excess in bytes.
        over: u64,
        /// The available bytes.
        room: usize,
    },
    /// Too many functions whose address is taken.
    #[error("the program takes the address of {functions} functions; {} are possible", layout::QUERY_TABLE.len())]
    TableOverrun {
        /// The number of functions.
        functions: u64,
    },
    /// Compiler output that this tool does not support.
    #[error("the compiler's output can't be used: {0}; clang 16 or later is required")]
    Malformed(String),
}

impl BuildError {
    /// The stable identifier of the error.
    #[must_use]
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Toolchain(_) => "toolchain-missing",
            Self::Source { .. } => "source-unreadable",
            Self::Language(_) => "source-language",
            Self::Compile(_) => "compile-failed",
            Self::Link(_) => "link-failed",
            Self::Folder(_) => "build-folder",
            Self::NoEntry => "entry-missing",
            Self::EntrySignature(_) => "entry-signature",
            Self::UndefinedData { .. } => "data-undefined",
            Self::UnknownFunction { .. } => "function-unknown",
            Self::FunctionSignature { .. } => "function-signature",
            Self::ForeignImport(_) => "import-foreign",
            Self::DataOverrun { .. } => "data-overrun",
            Self::TableOverrun { .. } => "table-overrun",
            Self::Malformed(_) => "module-malformed",
        }
    }
}

impl From<BuildError> for CliError {
    fn from(error: BuildError) -> Self {
        Self::failed(error.code(), error.to_string(), "")
    }
}

impl From<wasmparser::BinaryReaderError> for BuildError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(format!("{} at byte {}", error.message(), error.offset()))
    }
}
