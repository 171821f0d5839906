//! Programs before they are compiled: who may run which, and what they may do.
//!
//! `source.rs` describes the program of a request. `resolver.rs` maps it to a key of the program cache and
//! authorises its use, with the owners of `owner.rs`, the tokens of `token.rs`, the signatures of `trust.rs`
//! and the blocked programs of `blocked.rs`. `permissions.rs` defines which services and methods a program
//! may use. `check.rs` checks WebAssembly modules before they are compiled. `random_map.rs` is a map for keys
//! that the gateway generates.

mod blocked;
pub(crate) mod check;
mod owner;
mod permissions;
mod random_map;
mod resolver;
mod source;
mod token;
mod trust;

pub use blocked::{BlockedPrograms, ProgramsConfig};
pub(crate) use permissions::CallPermissions;
pub(crate) use random_map::RandomMap;
pub(crate) use resolver::{ProgramResolver, ResolvedProgram};
pub use source::ProgramLanguage;
pub(crate) use source::{
    CacheRequest, CachedProgramReference, ProgramHash, ProgramSignature, ProgramSource, to_hex,
};
pub(crate) use token::{SessionId, TOKEN_TEXT_LENGTH, TokenSealer};
pub use trust::{KeyConfig, SigningKeys, TrustConfig, format_public_key, is_low_s, signed_message};
