//! The configuration of a filter: an entry of a route's `filters:`.

use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, DurationConfig};

/// A Proxy-Wasm module on a route, with its configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// The path of the module, relative to the config file. A module is compiled once for all routes that use
    /// it.
    pub wasm: String,
    /// The name of the filter in logs and metrics and for the module itself. Default: the module's file name.
    #[serde(default)]
    pub name: Option<String>,
    /// The configuration that the module receives. A string is passed as is, any other value as JSON.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub config: serde_json::Value,
    /// The configuration of the virtual machine. Filters with the same module, `vm_config` and `vm_id` share
    /// one.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub vm_config: serde_json::Value,
    /// The root context to use, for a module that has several.
    #[serde(default)]
    pub root_id: String,
    /// Filters with the same `vm_id` share data and queues. If module and `vm_config` are the same too, they
    /// share instances.
    #[serde(default)]
    pub vm_id: String,
    /// Filters with a higher priority see the request earlier. Filters with equal priority keep their order.
    #[serde(default)]
    pub priority: i32,
    /// The handling of a request whose filter trapped or ran out of time in one of the request's callbacks,
    /// or can no longer start: `closed` answers with 503, `open` continues without the filter.
    #[serde(default)]
    pub on_trap: OnTrap,
    /// The handling of a request that a filter lets pass after the host refused its call or its own response:
    /// `closed` answers with 503, `open` lets it pass.
    #[serde(default)]
    pub on_refusal: OnRefusal,
    /// The rules where hosts differ: `lenient` runs modules that run on APISIX, Kong or Envoy, `strict`
    /// applies Envoy's rules.
    #[serde(default)]
    pub dialect: HostDialect,
    /// The names of the services that the module may call. Default: all services of the config.
    #[serde(default)]
    pub services: Option<Vec<String>>,
    /// Hosts that the module may call besides services: `auth.internal:8080`, `*.example.org`, `10.0.0.0/8`.
    /// An entry without a port allows every port. A host that matches a `*` and resolves to an address that
    /// is not public is refused, unless an entry with a network contains that address. Not allowed with
    /// `dialect: strict`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The limits of the filter.
    #[serde(default)]
    pub limits: FilterLimits,
}

/// The handling of a request whose filter trapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTrap {
    /// The request is answered with 503.
    #[default]
    Closed,
    /// The request continues without the filter.
    Open,
}

/// The handling of a request that a filter lets pass after the host refused its call or its own response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRefusal {
    /// The request is answered with 503.
    #[default]
    Closed,
    /// The request passes.
    Open,
}

/// The rules to apply where hosts differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostDialect {
    /// Allows everything that APISIX, Kong or Envoy allows.
    #[default]
    Lenient,
    /// Applies Envoy's rules.
    Strict,
}

/// The limits of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterLimits {
    /// CPU time of one callback, accurate to two milliseconds.
    pub cpu: DurationConfig,
    /// CPU time of starting the module, including its configuration.
    pub startup_cpu: DurationConfig,
    /// Memory of one instance. There are at most as many instances as the gateway has threads.
    pub memory: BytesConfig,
    /// HTTP and gRPC calls that one request may make. Also the limit on calls in flight that belong to no
    /// request.
    pub calls: u32,
    /// Bytes of a body that the filter holds back, that a call sends or receives, or that a foreign function
    /// takes or returns. A request that exceeds it is answered with 413, a response that exceeds it with 502.
    pub buffer: BytesConfig,
}

impl Default for FilterLimits {
    fn default() -> Self {
        Self {
            cpu: DurationConfig::from_millis(5),
            startup_cpu: DurationConfig::from_secs(2),
            memory: BytesConfig(64 << 20),
            calls: 32,
            buffer: BytesConfig(1 << 20),
        }
    }
}

impl FilterConfig {
    /// Returns a filter with the module and default settings, as for `orfa filter test` and tests.
    #[must_use]
    pub fn from_module(wasm: impl Into<String>) -> Self {
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
            dialect: HostDialect::Lenient,
            services: None,
            hosts: Vec::new(),
            limits: FilterLimits::default(),
        }
    }

    /// The filter's name: the configured one, or else the stem of the module's file name.
    #[must_use]
    pub fn name(&self) -> &str {
        let stem = || std::path::Path::new(&self.wasm).file_stem().and_then(|stem| stem.to_str());
        self.name.as_deref().or_else(stem).unwrap_or("filter")
    }
}

/// A configuration as the module receives it: a string as is, `null` as no bytes, any other value as JSON.
pub(crate) fn configuration_bytes(value: &serde_json::Value) -> bytes::Bytes {
    match value {
        serde_json::Value::Null => bytes::Bytes::new(),
        serde_json::Value::String(text) => text.clone().into(),
        value => value.to_string().into(),
    }
}
