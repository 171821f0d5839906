//! What can go wrong while a query is built, in the words of its author.
use query_abi::layout;

use crate::exit::Complaint;

/// Why a query could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// clang or wasm-ld is missing.
    #[error("{0}")]
    Toolchain(String),
    /// The source can't be read.
    #[error("{path} can't be read: {error}")]
    Source {
        /// What was to be read.
        path: String,
        /// Why it wasn't.
        error: std::io::Error,
    },
    /// Not a language that needs building.
    #[error("{0} is no C file; JavaScript and TypeScript are sent as they are: `orfa call FILE`")]
    Language(String),
    /// clang refused the program.
    #[error("the program does not compile: {0}")]
    Compile(String),
    /// wasm-ld refused the object.
    #[error("the program does not link: {0}")]
    Link(String),
    /// The folder for intermediate files failed.
    #[error("the folder for intermediate files failed: {0}")]
    Folder(#[source] std::io::Error),
    /// There is no entry point.
    #[error("the program has no `void orfa(const void *input, int len)`: that is what the gateway calls")]
    NoEntry,
    /// The entry point has another signature.
    #[error("`orfa` has to be `void orfa(const void *input, int len)`, and not {0}")]
    EntrySignature(String),
    /// Data that nobody defines.
    #[error("undefined data {names}: an environment lends functions only; define it in the program{hint}")]
    UndefinedData {
        /// The symbols, with commas between.
        names: String,
        /// What to do about it, where that is known.
        hint: &'static str,
    },
    /// A function that the environment does not have.
    #[error("the environment {environment} has no function `{name}`{hint}")]
    UnknownFunction {
        /// The environment.
        environment: &'static str,
        /// The function.
        name: String,
        /// The nearest name that exists.
        hint: String,
    },
    /// A function that is declared differently than the environment has it.
    #[error(
        "`{name}` is declared as {declared}, but the environment has it as {promised}: include its header"
    )]
    FunctionSignature {
        /// The function.
        name: String,
        /// Its type in the program.
        declared: String,
        /// Its type in the environment.
        promised: String,
    },
    /// An import of something else than a host function or the environment.
    #[error("`{0}` can't be imported: only functions of the environment and of `orfa` can")]
    ForeignImport(String),
    /// Too much data.
    #[error(
        "the data of the program is {over} bytes too large: constants and static variables have {room} \
         bytes together; take memory from malloc() or orfa_alloc() instead"
    )]
    DataOverrun {
        /// By how much.
        over: u64,
        /// What there is.
        room: usize,
    },
    /// Too many functions whose address is taken.
    #[error("the program takes the address of {functions} functions; {} are possible", layout::QUERY_TABLE.len())]
    TableOverrun {
        /// How many.
        functions: u64,
    },
    /// The compiler made something that this tool does not know.
    #[error("what the compiler made can't be used: {0}; is it a clang from 16 on?")]
    Malformed(String),
}

impl BuildError {
    /// The stable name of the error.
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

impl From<BuildError> for Complaint {
    fn from(error: BuildError) -> Self {
        Self::failed(error.code(), error.to_string(), "")
    }
}

impl From<wasmparser::BinaryReaderError> for BuildError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(format!("{} at byte {}", error.message(), error.offset()))
    }
}
