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

/// The host functions by which a module sees what stands in a head.
const READING: [&str; 4] = [
    "proxy_get_header_map_size",
    "proxy_get_header_map_pairs",
    "proxy_get_header_map_value",
    "proxy_get_property",
];

/// What a module exports and imports, of what costs something to offer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    pub(crate) request_body: bool,
    pub(crate) request_trailers: bool,
    pub(crate) response_headers: bool,
    pub(crate) response_body: bool,
    pub(crate) response_trailers: bool,
    /// Whether it is called again once the exchange is over.
    pub(crate) end: bool,
    /// Whether it imports what shows heads.
    pub(crate) reads: bool,
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
            end: has("proxy_on_log") || has("proxy_on_done") || has("proxy_on_delete"),
            reads: module.imports().any(|import| READING.contains(&import.name())),
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

    /// Whether it has a callback for trailers of this kind.
    pub(crate) fn trailers(self, side: crate::abi::Side) -> bool {
        match side {
            crate::abi::Side::Request => self.request_trailers,
            crate::abi::Side::Response => self.response_trailers,
        }
    }

    /// Whether it can still ask for a message's head once that is on its way.
    pub(crate) fn looks_back(self, side: crate::abi::Side) -> bool {
        let is_called = match side {
            crate::abi::Side::Request => self.response_headers || self.body(crate::abi::Side::Response),
            crate::abi::Side::Response => self.response_body,
        };
        self.reads && (is_called || self.end)
    }
}
