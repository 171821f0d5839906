//! A compiled module with resolved imports and inspected exports. The types of its callbacks are checked by
//! the first instance, before the module handles a request.

use sandbox::{CacheKey, InstancePre, Linker, Sandbox};
use sha2::{Digest, Sha256};

use crate::abi::{AbiVersion, ModuleFeatures};
use crate::error::FilterRefusalReason;
use crate::host::FilterHost;

/// A module, ready to be instantiated.
pub(crate) struct FilterModule {
    pub(crate) key: CacheKey,
    pub(crate) abi: AbiVersion,
    pub(crate) features: ModuleFeatures,
    pub(crate) pre: InstancePre<FilterHost>,
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
        let features = ModuleFeatures::of(&module);
        let pre = linker
            .instantiate_pre(&module)
            .map_err(|error| FilterRefusalReason::Import(format!("{error:#}")))?;
        Ok(Self { key, abi, features, pre })
    }
}
