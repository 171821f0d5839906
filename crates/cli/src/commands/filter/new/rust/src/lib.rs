//! A filter that adds a header to each response. Its configuration is the header's value.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

/// The root context, one for each use of the filter in the config.
#[derive(Default)]
struct Plugin {
    value: String,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    /// Returning false rejects the configuration, and with it the route.
    fn on_configure(&mut self, _size: usize) -> bool {
        let text = self.get_plugin_configuration().unwrap_or_else(|| b"my-filter".to_vec());
        match String::from_utf8(text) {
            Ok(value) => self.value = value,
            Err(_) => return false,
        }
        true
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { value: self.value.clone() }))
    }
}

/// The context of a request.
struct Stream {
    value: String,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        self.add_http_response_header("x-filter", &self.value);
        Action::Continue
    }
}
