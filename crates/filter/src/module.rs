//! A compiled module with resolved imports and inspected exports. The types of its callbacks are checked by
//! the first instance, before the module handles a request.

use sandbox::{CacheKey, InstancePre, Linker, Sandbox};
use sha2::{Digest, Sha256};

use crate::abi::AbiVersion;
use crate::host::FilterHost;
use crate::refused::FilterRefusalReason;

/// A module, ready to be instantiated.
pub(crate) struct FilterModule {
    pub(crate) key: CacheKey,
    pub(crate) abi: AbiVersion,
    pub(crate) features: ModuleFeatures,
    pub(crate) pre: InstancePre<FilterHost>,
}

/// The host functions through which a module reads heads.
const HEAD_READING_FUNCTIONS: [&str; 4] = [
    "proxy_get_header_map_size",
    "proxy_get_header_map_pairs",
    "proxy_get_header_map_value",
    "proxy_get_property",
];

/// The exports and imports of a module that affect the work of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModuleFeatures {
    pub(crate) request_body: bool,
    pub(crate) request_trailers: bool,
    pub(crate) response_headers: bool,
    pub(crate) response_body: bool,
    pub(crate) response_trailers: bool,
    /// Whether the module is called after the exchange.
    pub(crate) has_end_callbacks: bool,
    /// Whether the module imports functions that read heads.
    pub(crate) reads_heads: bool,
}

impl FilterModule {
    /// The key of a module: the hash of its bytes.
    pub(crate) fn key(wasm: &[u8]) -> CacheKey {
        Sha256::digest(wasm).into()
    }

    pub(crate) fn load(
        key: CacheKey,
        wasm: &[u8],
        sandbox: &Sandbox,
        linker: &Linker<FilterHost>,
    ) -> Result<Self, FilterRefusalReason> {
        let module =
            sandbox.compile(wasm).map_err(|error| FilterRefusalReason::Malformed(error.to_string()))?;
        let has = |name: &str| module.get_export(name).is_some();
        let (_, abi) = AbiVersion::MARKERS
            .into_iter()
            .find(|(marker, _)| has(marker))
            .ok_or(FilterRefusalReason::Abi)?;
        if !matches!(module.get_export("memory"), Some(sandbox::ExternType::Memory(_))) {
            return Err(FilterRefusalReason::Memory);
        }
        if !has("proxy_on_memory_allocate") && !has("malloc") {
            return Err(FilterRefusalReason::Allocator);
        }
        let has = ModuleFeatures {
            request_body: has("proxy_on_request_body"),
            request_trailers: has("proxy_on_request_trailers"),
            response_headers: has("proxy_on_response_headers"),
            response_body: has("proxy_on_response_body"),
            response_trailers: has("proxy_on_response_trailers"),
            has_end_callbacks: has("proxy_on_log") || has("proxy_on_done") || has("proxy_on_delete"),
            reads_heads: module.imports().any(|import| HEAD_READING_FUNCTIONS.contains(&import.name())),
        };
        let pre = linker
            .instantiate_pre(&module)
            .map_err(|error| FilterRefusalReason::Import(format!("{error:#}")))?;
        Ok(Self { key, abi, features: has, pre })
    }
}

impl ModuleFeatures {
    /// Whether the module reads bodies in this direction.
    pub(crate) fn reads_body(self, side: crate::abi::MessageSide) -> bool {
        match side {
            crate::abi::MessageSide::Request => self.request_body || self.request_trailers,
            crate::abi::MessageSide::Response => self.response_body || self.response_trailers,
        }
    }

    /// Whether the module has a callback for trailers in this direction.
    pub(crate) fn reads_trailers(self, side: crate::abi::MessageSide) -> bool {
        match side {
            crate::abi::MessageSide::Request => self.request_trailers,
            crate::abi::MessageSide::Response => self.response_trailers,
        }
    }

    /// Whether the module can still read a message's head after it has left.
    pub(crate) fn can_read_sent_head(self, side: crate::abi::MessageSide) -> bool {
        let is_called = match side {
            crate::abi::MessageSide::Request => {
                self.response_headers || self.reads_body(crate::abi::MessageSide::Response)
            }
            crate::abi::MessageSide::Response => self.response_body,
        };
        self.reads_heads && (is_called || self.has_end_callbacks)
    }
}
