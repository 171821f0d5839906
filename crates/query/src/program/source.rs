//! The program of a request, as the client sent or named it.

use bytes::Bytes;

use crate::config::CacheMode;

/// SHA-256 of a program's bytes.
pub(crate) type ProgramHash = [u8; 32];

/// The language of a program, by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramLanguage {
    /// A module of WebAssembly.
    Wasm,
    /// JavaScript source.
    Javascript,
    /// TypeScript source.
    Typescript,
}

impl ProgramLanguage {
    /// Returns the language's media type (RFC 9239 for JavaScript).
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Wasm => "application/wasm",
            Self::Javascript => "text/javascript",
            Self::Typescript => "text/typescript",
        }
    }

    /// Returns the language of files with this extension.
    pub(crate) fn from_extension(ending: &str) -> Option<Self> {
        match ending {
            "wasm" => Some(Self::Wasm),
            "js" | "mjs" => Some(Self::Javascript),
            "ts" | "mts" => Some(Self::Typescript),
            _ => None,
        }
    }
}

/// The program of a request.
#[derive(Debug)]
pub(crate) struct ProgramSource {
    pub(crate) language: ProgramLanguage,
    /// `None` if the request names the program instead of sending it.
    pub(crate) program: Option<Bytes>,
    pub(crate) cache: Option<CacheRequest>,
    pub(crate) signature: Option<ProgramSignature>,
}

/// The caching that a request asks for with `ORFA-Cache`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheRequest {
    pub(crate) mode: CacheMode,
    pub(crate) program_reference: Option<CachedProgramReference>,
}

/// A reference to a cached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedProgramReference {
    /// A token from an earlier response, in base64.
    Token(String),
    Hash(ProgramHash),
}

/// A signature in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramSignature {
    pub(crate) key: String,
    pub(crate) bytes: [u8; 64],
}

/// Formats a hash in hexadecimal.
pub(crate) fn to_hex(hash: &ProgramHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
