//! Tests of filters on routes: the messages that pass through them, configurations that are refused, and
//! reloads.

mod bodies;
mod calls;
mod heads;
mod misbehaving;
mod reload;

use std::path::{Path, PathBuf};

use http::StatusCode;
use tempfile::TempDir;

use super::fixture::{self, GatewayFixture, get, post};
use crate::{BuildError, Gateway, GatewayConfig, config};

/// The common part of all modules here. `add` adds a header to a map (2 is that of the response), `respond`
/// sends a local response.
const COMMON: &str = r#"
    (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_send_local_response"
        (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_set_buffer_bytes" (func $set_buffer (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_get_header_map_pairs" (func $pairs (param i32 i32 i32) (result i32)))
    (import "env" "proxy_get_shared_data" (func $get_data (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_set_shared_data" (func $set_data (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
    (import "env" "proxy_http_call"
        (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
    (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
    (import "env" "proxy_done" (func $done (result i32)))
    (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
    (memory (export "memory") 3)
    (global $free (mut i32) (i32.const 4096))
    (data (i32.const 16) "x-filter")
    (data (i32.const 32) "one")
    (data (i32.const 48) "two")
    (data (i32.const 64) "seen.in.tests")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32)
        (local $at i32)
        ;; What one callback is given is not needed by the next.
        (if (i32.gt_u (i32.add (global.get $free) (local.get 0)) (i32.const 0x20000))
            (then (global.set $free (i32.const 4096))))
        (local.set $at (global.get $free))
        (global.set $free (i32.add (global.get $free) (local.get 0)))
        (local.get $at))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func $want (param $wanted i32) (param $status i32)
        (if (i32.ne (local.get $wanted) (local.get $status)) (then unreachable)))
    (func $say (param $text i32)
        (drop (call $add (i32.const 2) (i32.const 16) (i32.const 8) (local.get $text) (i32.const 3))))
"#;

/// Adds `x-filter: one` to each response.
const ADDS_ONE: &str = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (call $say (i32.const 32)) (i32.const 0))"#;
/// Adds `x-filter: two` to each response.
const ADDS_TWO: &str = r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (call $say (i32.const 48)) (i32.const 0))"#;
/// Answers every request with 418.
const RESPONDS_TEAPOT: &str = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $respond (i32.const 418) (i32.const 0) (i32.const 0) (i32.const 32) (i32.const 3)
        (i32.const 0) (i32.const 0) (i32.const -1)))
    (i32.const 1))"#;
const TRAPS: &str =
    r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (unreachable))"#;
/// Accepts a configuration of at least four bytes.
const CHECKS_CONFIGURATION: &str = r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
    (i32.ge_u (local.get 1) (i32.const 4)))"#;
/// Counts its requests.
const COUNTS_REQUESTS: &str = r#"
    (global $metric (mut i32) (i32.const 0))
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $define (i32.const 0) (i32.const 64) (i32.const 13) (i32.const 128)))
        (global.set $metric (i32.load (i32.const 128)))
        (i32.const 1))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $increment (global.get $metric) (i64.const 1)))
        (i32.const 0))"#;

/// The name of the metric that modules count, and its ID from the host at 128.
const DEFINES_METRIC: &str = r#"
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (call $want (i32.const 0) (call $define (i32.const TYPE) (i32.const 64) (i32.const 13) (i32.const 128)))
        (i32.const 1))
    (func $count (call $want (i32.const 0) (call $increment (i32.load (i32.const 128)) (i64.const 1))))"#;

/// Defines a counter in the module, which `$count` increments.
fn counter_module() -> String {
    DEFINES_METRIC.replace("TYPE", "0")
}

/// The headers of a call to `GET /path`, at 1024; `$ask` sends it to the service `echo`.
fn call_module(path: &str) -> String {
    let pairs = [(":method", "GET"), (":path", path), (":authority", "a")];
    let mut bytes = 3_u32.to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend([name.len(), value.len()].iter().flat_map(|length| (*length as u32).to_le_bytes()));
    }
    let texts = pairs.iter().flat_map(|(name, value)| [name, value]);
    texts.for_each(|text| bytes.extend(text.bytes().chain([0])));
    let data: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!(
        r#"(data (i32.const 80) "echo") (data (i32.const 1024) "{data}")
        (func $ask (call $want (i32.const 0) (call $http_call (i32.const 80) (i32.const 4)
            (i32.const 1024) (i32.const {}) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 600000) (i32.const 132))))"#,
        bytes.len()
    )
}

/// Waits until a condition holds, at most as long as a test run may take.
async fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

impl GatewayFixture {
    /// The value of the modules' counter `seen.in.tests`, or 0 if it does not exist yet.
    fn module_counter(&self) -> u64 {
        let metrics = self.gateway.active_config.pipeline().filters.as_ref().map(|filters| filters.metrics());
        let filter_metric = metrics.into_iter().flatten().find(|metric| metric.name == "seen.in.tests");
        filter_metric.map_or(0, |metric| match metric.value {
            filter::MetricValue::Counter(count) => count,
            filter::MetricValue::Gauge(value) => value.cast_unsigned(),
            filter::MetricValue::Histogram { .. } => panic!("a histogram"),
        })
    }

    /// The host's counts for the filter with this name.
    fn stats(&self, name: &str) -> filter::FilterStats {
        let stats = self.gateway.active_config.pipeline().filters.as_ref().map(|filters| filters.stats());
        stats.into_iter().flatten().find(|stats| stats.filter == name).unwrap_or_default()
    }

    /// Reloads with other filters.
    fn reload_filters(&self, modules: &ModuleFolder, filters: &[(&str, &str)]) {
        let config = parse_config(&modules.proxy_config(filters), &self.upstream_address.to_string());
        self.gateway.reload(&config).unwrap();
    }
}

/// Returns a module that adds a header to every request.
pub(super) fn header_adder(name: &str, value: &str) -> String {
    format!(
        r#"(data (i32.const 144) "{name}") (data (i32.const 192) "{value}")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $add (i32.const 0) (i32.const 144) (i32.const {})
                (i32.const 192) (i32.const {})))
            (i32.const 0))"#,
        name.len(),
        value.len()
    )
}

/// Returns a module that adds the value of a request's header to the request under another name.
pub(super) fn header_copier(from: &str, to: &str) -> String {
    format!(
        r#"(data (i32.const 144) "{from}") (data (i32.const 192) "{to}")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $get (i32.const 0) (i32.const 144) (i32.const {})
                (i32.const 224) (i32.const 228)))
            (call $want (i32.const 0) (call $add (i32.const 0) (i32.const 192) (i32.const {})
                (i32.load (i32.const 224)) (i32.load (i32.const 228))))
            (i32.const 0))"#,
        from.len(),
        to.len()
    )
}

/// Modules in a folder.
pub(super) struct ModuleFolder(TempDir);

impl ModuleFolder {
    pub(super) fn new(modules: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        modules.iter().for_each(|(name, code)| folder.write_module(name, code));
        folder
    }

    fn write_module(&self, name: &str, code: &str) {
        std::fs::write(self.module_path(name), wat::parse_str(format!("(module {COMMON} {code})")).unwrap())
            .unwrap();
    }

    fn module_path(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.wasm"))
    }

    /// A config whose routes have these filters, each as YAML without its module.
    fn config(&self, filters: &[(&str, &str)]) -> String {
        let route = format!(
            "  - {{ path: /query, query: {{ services: [echo] }}, filters: [{}] }}\n",
            self.filters_yaml(filters)
        );
        format!("runtime: {{ instances: 2 }}\n{}{route}", self.proxy_config(filters))
    }

    /// Like [`Self::config`] without a query route, which is faster to build. Shedding is off, because
    /// machines that run tests are busy with other processes.
    pub(super) fn proxy_config(&self, filters: &[(&str, &str)]) -> String {
        format!(
            "shed: {{ automatic: false }}\nservices: {{ echo: {{ url: 'http://UPSTREAM' }} }}\nroutes:\n  \
             - {{ path: '/echo/*', proxy: echo, filters: [{}] }}\n",
            self.filters_yaml(filters)
        )
    }

    fn filters_yaml(&self, filters: &[(&str, &str)]) -> String {
        let entry =
            |(name, more): &(&str, &str)| format!("{{ wasm: '{}'{more} }}", self.module_path(name).display());
        filters.iter().map(entry).collect::<Vec<_>>().join(", ")
    }
}

fn parse_config(text: &str, upstream: &str) -> GatewayConfig {
    let text = format!("listen: 127.0.0.1:0\n{}", text.replace("UPSTREAM", upstream));
    config::read_text(&text, Path::new("orfa.yaml")).unwrap()
}

#[tokio::test]
async fn filters_see_every_response_of_a_route() {
    let modules = ModuleFolder::new(&[("one", ADDS_ONE), ("two", ADDS_TWO)]);
    let rig = GatewayFixture::new(&modules.config(&[("one", ""), ("two", "")])).await;
    let proxied = rig.send_request(get("/echo/a")).await;
    assert_eq!(
        (proxied.status(), proxied.header("x-filter")),
        (StatusCode::OK, "two"),
        "the last is the first"
    );
    let mut query = post("/query", "export default () => 1");
    query.headers_mut().insert("content-type", "text/javascript".parse().unwrap());
    let queried = rig.send_request(query).await;
    assert_eq!((queried.status(), queried.header("x-filter")), (StatusCode::OK, "two"));
    let problem = rig.send_request(post("/query", "")).await;
    assert_eq!((problem.status(), problem.header("x-filter")), (StatusCode::BAD_REQUEST, "two"));
    assert_eq!(problem.json()["code"], "content-type-missing");
    assert_eq!(rig.send_request(get("/elsewhere")).await.header("x-filter"), "");
}

#[tokio::test]
async fn runs_filters_with_a_higher_priority_first() {
    let modules = ModuleFolder::new(&[("one", ADDS_ONE), ("teapot", RESPONDS_TEAPOT)]);
    let rig = GatewayFixture::new(&modules.config(&[("one", ""), ("teapot", ", priority: 1")])).await;
    let answer = rig.send_request(get("/echo/a")).await;
    assert_eq!((answer.status().as_u16(), answer.text(), answer.header("x-filter")), (418, "one", ""));
}

#[tokio::test]
async fn a_trapping_filter_fails_closed_or_open_and_is_reported() {
    let modules = ModuleFolder::new(&[("trap", TRAPS)]);
    let config = modules.config(&[("trap", ", name: fragile")]);
    let rig = GatewayFixture::new(&format!("admin: 127.0.0.1:0\n{config}")).await;
    let closed = rig.send_request(get("/echo/a")).await;
    assert_eq!(
        (closed.status(), &closed.json()["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"filter-failed".into())
    );
    let listener = rig.gateway.adopt_admin(&mut Vec::new()).unwrap().unwrap();
    let admin = rig.gateway.admin(listener).unwrap();
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve());
    let page = super::fixture::send_to(address, get("/metrics")).await.unwrap();
    assert!(page.text().contains("orfa_filter_traps_total{filter=\"fragile\"} 1\n"), "{}", page.text());
    let gateway_config =
        parse_config(&modules.config(&[("trap", ", on_trap: open")]), &rig.upstream_address.to_string());
    rig.gateway.reload(&gateway_config).unwrap();
    assert_eq!(rig.send_request(get("/echo/a")).await.status(), StatusCode::OK);
    let log = rig.end().await.log;
    assert!(log.contains(r#""status":503,"code":"filter-failed""#), "{log}");
}

#[tokio::test]
async fn exports_the_metrics_of_modules() {
    let modules = ModuleFolder::new(&[("counts", COUNTS_REQUESTS)]);
    let gateway_fixture =
        GatewayFixture::new(&format!("admin: 127.0.0.1:0\n{}", modules.config(&[("counts", "")]))).await;
    for _ in 0..3 {
        gateway_fixture.send_request(get("/echo/a")).await;
    }
    let listener = gateway_fixture.gateway.adopt_admin(&mut Vec::new()).unwrap().unwrap();
    let admin = gateway_fixture.gateway.admin(listener).unwrap();
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve());
    let page = super::fixture::send_to(address, get("/metrics")).await.unwrap();
    assert!(page.text().contains("orfa_wasm_total{name=\"seen.in.tests\"} 3\n"), "{}", page.text());
}

#[test]
fn reports_a_module_that_refuses_its_configuration() {
    let modules = ModuleFolder::new(&[("choosy", CHECKS_CONFIGURATION), ("one", ADDS_ONE)]);
    let text = modules.config(&[("one", ""), ("choosy", ", config: abc"), ("none", "")]);
    let Err(BuildError::Config(mistakes)) = Gateway::build(parse_config(&text, "127.0.0.1:1")) else {
        panic!()
    };
    let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 4, "two of each of the two routes: {said:#?}");
    assert!(
        said[0].contains("routes[0].filters[1].config") && said[0].contains("filter-config-refused"),
        "{said:#?}"
    );
    assert!(
        said[1].contains("routes[0].filters[2].wasm") && said[1].contains("filter-module-unreadable"),
        "{said:#?}"
    );
    Gateway::build(parse_config(&modules.config(&[("choosy", ", config: abcd")]), "127.0.0.1:1")).unwrap();
}

#[tokio::test]
async fn a_reload_changes_filters_for_new_requests_only() {
    let modules =
        ModuleFolder::new(&[("one", ADDS_ONE), ("two", ADDS_TWO), ("choosy", CHECKS_CONFIGURATION)]);
    let fixture = GatewayFixture::new(&modules.config(&[("one", "")])).await;
    let waiting = tokio::spawn(fixture.send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    let upstream = fixture.upstream_address.to_string();
    fixture.gateway.reload(&parse_config(&modules.config(&[("two", "")]), &upstream)).unwrap();
    assert_eq!(fixture.send_request(get("/echo/a")).await.header("x-filter"), "two");
    fixture.gateway.reload(&parse_config(&modules.config(&[("choosy", "")]), &upstream)).unwrap_err();
    assert_eq!(fixture.send_request(get("/echo/a")).await.header("x-filter"), "two", "the old one stays");
    fixture.upstream.release();
    assert_eq!(waiting.await.unwrap().header("x-filter"), "one");
    // The same name with other content: the config's files are watched, and read again.
    modules.write_module("two", ADDS_ONE);
    fixture.gateway.reload(&parse_config(&modules.config(&[("two", "")]), &upstream)).unwrap();
    assert_eq!(fixture.send_request(get("/echo/a")).await.header("x-filter"), "one");
    assert!(
        parse_config(&modules.config(&[("two", "")]), &upstream)
            .source
            .files()
            .contains(&modules.module_path("two"))
    );
}
