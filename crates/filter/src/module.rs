//! A module: compiled, its imports found, its exports looked at. What only an instance can say (the types of
//! its callbacks) is found out by the first one, before the module touches a request.

use sandbox::{InstancePre, Key, Linker, Sandbox};
use sha2::{Digest, Sha256};

use crate::abi::Abi;
use crate::host::Host;
use crate::refused::Reason;

/// A module, ready to be instantiated.
pub(crate) struct Module {
    pub(crate) key: Key,
    pub(crate) abi: Abi,
    pub(crate) has: Has,
    pub(crate) pre: InstancePre<Host>,
}

/// Which callbacks a module exports, of those that cost something to offer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    pub(crate) request_body: bool,
    pub(crate) request_trailers: bool,
    pub(crate) response_headers: bool,
    pub(crate) response_body: bool,
    pub(crate) response_trailers: bool,
    /// Whether it can look back at the exchange.
    pub(crate) log: bool,
}

impl Module {
    /// What a module is known by.
    pub(crate) fn key(wasm: &[u8]) -> Key {
        Sha256::digest(wasm).into()
    }

    pub(crate) fn load(
        key: Key,
        wasm: &[u8],
        sandbox: &Sandbox,
        linker: &Linker<Host>,
    ) -> Result<Self, Reason> {
        let module = sandbox.compile(wasm).map_err(|error| Reason::Malformed(error.to_string()))?;
        let has = |name: &str| module.get_export(name).is_some();
        let (_, abi) = Abi::MARKERS.into_iter().find(|(marker, _)| has(marker)).ok_or(Reason::Abi)?;
        if !matches!(module.get_export("memory"), Some(sandbox::ExternType::Memory(_))) {
            return Err(Reason::Memory);
        }
        if !has("proxy_on_memory_allocate") && !has("malloc") {
            return Err(Reason::Allocator);
        }
        let has = Has {
            request_body: has("proxy_on_request_body"),
            request_trailers: has("proxy_on_request_trailers"),
            response_headers: has("proxy_on_response_headers"),
            response_body: has("proxy_on_response_body"),
            response_trailers: has("proxy_on_response_trailers"),
            log: has("proxy_on_log") || has("proxy_on_done") || has("proxy_on_delete"),
        };
        let pre = linker.instantiate_pre(&module).map_err(|error| Reason::Import(format!("{error:#}")))?;
        Ok(Self { key, abi, has, pre })
    }
}

impl Has {
    /// Whether it sees bodies of this kind at all.
    pub(crate) fn body(self, side: crate::abi::Side) -> bool {
        match side {
            crate::abi::Side::Request => self.request_body || self.request_trailers,
            crate::abi::Side::Response => self.response_body || self.response_trailers,
        }
    }

    /// Whether it can still ask for the request once that is on its way.
    pub(crate) fn looks_back(self) -> bool {
        self.response_headers || self.response_body || self.response_trailers || self.log
    }
}
