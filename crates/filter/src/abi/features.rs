//! The part of the ABI that a module uses.

use sandbox::Module;

use super::MessageSide;

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

impl ModuleFeatures {
    /// Inspects a module.
    pub(crate) fn of(module: &Module) -> Self {
        let has = |name: &str| module.get_export(name).is_some();
        Self {
            request_body: has("proxy_on_request_body"),
            request_trailers: has("proxy_on_request_trailers"),
            response_headers: has("proxy_on_response_headers"),
            response_body: has("proxy_on_response_body"),
            response_trailers: has("proxy_on_response_trailers"),
            has_end_callbacks: has("proxy_on_log") || has("proxy_on_done") || has("proxy_on_delete"),
            reads_heads: module.imports().any(|import| HEAD_READING_FUNCTIONS.contains(&import.name())),
        }
    }

    /// Whether the module reads bodies in this direction.
    pub(crate) fn reads_body(self, side: MessageSide) -> bool {
        match side {
            MessageSide::Request => self.request_body || self.request_trailers,
            MessageSide::Response => self.response_body || self.response_trailers,
        }
    }

    /// Whether the module has a callback for trailers in this direction.
    pub(crate) fn reads_trailers(self, side: MessageSide) -> bool {
        match side {
            MessageSide::Request => self.request_trailers,
            MessageSide::Response => self.response_trailers,
        }
    }

    /// Whether the module can still read a message's head after it has left.
    pub(crate) fn can_read_sent_head(self, side: MessageSide) -> bool {
        let is_called = match side {
            MessageSide::Request => self.response_headers || self.reads_body(MessageSide::Response),
            MessageSide::Response => self.response_body,
        };
        self.reads_heads && (is_called || self.has_end_callbacks)
    }
}
