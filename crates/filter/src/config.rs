//! What an operator writes of a filter: an entry of a route's `filters:`.

use schemars::JsonSchema;
use serde::Deserialize;
use services::{Bytes, Duration};

/// A Proxy-Wasm module with its configuration, on a route.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// The module: a path relative to the config. It is compiled once, however many routes name it.
    pub wasm: String,
    /// What logs, metrics and the module itself call the filter. Without it: the module's file name.
    #[serde(default)]
    pub name: Option<String>,
    /// The configuration that the module gets: a text as it is, anything else as JSON.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub config: serde_json::Value,
    /// The same for the virtual machine, which filters with the same module, `vm_config` and a `vm_id` share.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub vm_config: serde_json::Value,
    /// Which of its root contexts a module with several takes.
    #[serde(default)]
    pub root_id: String,
    /// Filters with the same `vm_id` share data and queues, and those that have one share their instances too, if
    /// module and `vm_config` are the same.
    #[serde(default)]
    pub vm_id: String,
    /// Filters with a higher priority see the request earlier. Those with the same one keep their order.
    #[serde(default)]
    pub priority: i32,
    /// What becomes of a request whose filter trapped or ran out of time in one of its own callbacks, or does not start
    /// any more: `closed` answers with 503, `open` goes on without the filter.
    #[serde(default)]
    pub on_trap: OnTrap,
    /// What becomes of a request whose filter could not make a call, or give a response of its own, and lets it pass in
    /// the same callback: `closed` answers with 503, `open` lets it pass.
    #[serde(default)]
    pub on_refusal: OnRefusal,
    /// Whose rules hold: `lenient` runs what APISIX, Kong and Envoy run, `strict` refuses what Envoy refuses.
    #[serde(default)]
    pub dialect: Dialect,
    /// The services that the module may call, by name. Without it: all that the config has.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    /// The hosts that the module may call beside services: `auth.internal:8080`, `*.example.org`, `10.0.0.0/8`;
    /// without a port, at every port. Where a `*` leads to an address that is not public, nothing is sent, unless
    /// a network here holds it. Not with `dialect: strict`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The caps.
    #[serde(default)]
    pub limits: FilterLimits,
}

/// What becomes of a request whose filter trapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTrap {
    /// It is answered with 503.
    #[default]
    Closed,
    /// It goes on without the filter.
    Open,
}

/// What becomes of a request that a filter lets pass after the host refused it a call or a response of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRefusal {
    /// It is answered with 503.
    #[default]
    Closed,
    /// It passes.
    Open,
}

/// Whose rules hold where hosts differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// What any of APISIX, Kong and Envoy allows is allowed.
    #[default]
    Lenient,
    /// Envoy's rules.
    Strict,
}

/// The caps of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterLimits {
    /// CPU time of one callback, to within two milliseconds.
    pub time: Duration,
    /// CPU time of a start: what the module does before it takes requests, its configuration included.
    pub start: Duration,
    /// Memory of one virtual machine. There are at most as many as the gateway has threads.
    pub memory: Bytes,
    /// HTTP and gRPC calls that one request may make, and that may be under way for none.
    pub calls: u32,
    /// Bytes of a body that the filter holds back, that a call sends or brings, or that a foreign function takes or
    /// gives. A request over it is answered with 413, a response over it with 502.
    pub buffer: Bytes,
}

impl Default for FilterLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(5),
            start: Duration::from_secs(2),
            memory: Bytes(64 << 20),
            calls: 32,
            buffer: Bytes(1 << 20),
        }
    }
}

impl FilterConfig {
    /// A filter with nothing but its module: `orfa filter test`, tests.
    #[must_use]
    pub fn of(wasm: impl Into<String>) -> Self {
        Self {
            wasm: wasm.into(),
            name: None,
            config: serde_json::Value::Null,
            vm_config: serde_json::Value::Null,
            root_id: String::new(),
            vm_id: String::new(),
            priority: 0,
            on_trap: OnTrap::Closed,
            on_refusal: OnRefusal::Closed,
            dialect: Dialect::Lenient,
            services: None,
            hosts: Vec::new(),
            limits: FilterLimits::default(),
        }
    }

    /// What the filter is called.
    #[must_use]
    pub fn name(&self) -> &str {
        let stem = || std::path::Path::new(&self.wasm).file_stem().and_then(|stem| stem.to_str());
        self.name.as_deref().or_else(stem).unwrap_or("filter")
    }
}

/// A configuration as the module gets it: a text as it is, anything else as JSON, nothing as nothing.
pub(crate) fn bytes(value: &serde_json::Value) -> bytes::Bytes {
    match value {
        serde_json::Value::Null => bytes::Bytes::new(),
        serde_json::Value::String(text) => text.clone().into(),
        value => value.to_string().into(),
    }
}
