//! Refusal of modules, and the isolation of others from refused ones.

use super::*;

fn refusal_code(result: Result<Arc<FilterChain>, Vec<RefusedFilter>>) -> String {
    match result {
        Ok(_) => String::new(),
        Err(refused) => {
            refused.iter().map(|filter| format!("{} {}", filter.pointer, filter.reason.code())).collect()
        }
    }
}

#[test]
fn refuses_invalid_modules_with_a_code() {
    let bench = FilterFixture::new();
    let abi = r#"(func (export "proxy_abi_version_0_2_0"))"#;
    let memory = r#"(memory (export "memory") 1)"#;
    let malloc = r#"(func (export "malloc") (param i32) (result i32) (i32.const 0))"#;
    let cases = [
        (String::new(), "/0/wasm filter-module-abi"),
        (abi.to_owned(), "/0/wasm filter-module-memory"),
        (format!("{abi} {memory}"), "/0/wasm filter-module-allocator"),
        (
            format!("(import \"env\" \"nothing\" (func)) {abi} {memory} {malloc}"),
            "/0/wasm filter-module-import",
        ),
        (
            format!("{abi} {memory} {malloc} (func (export \"proxy_on_done\"))"),
            "/0/wasm filter-module-signature",
        ),
        (
            format!("{abi} {memory} {malloc} (func (export \"_initialize\") unreachable)"),
            "/0/config filter-start-failed",
        ),
        (
            format!("{abi} {memory} {malloc} (func (export \"_initialize\") (loop (br 0)))"),
            "/0/config filter-start-failed",
        ),
        (
            format!(
                "{abi} {memory} {malloc}
                (func (export \"proxy_on_vm_start\") (param i32 i32) (result i32) (i32.const 0))"
            ),
            "/0/vm_config filter-start-refused",
        ),
        (
            format!(
                "{abi} {memory} {malloc}
                (func (export \"proxy_on_vm_start\") (param i32 i32) (result i32) unreachable)"
            ),
            "/0/config filter-start-failed",
        ),
        (
            format!(
                "{abi} {memory} {malloc}
                (func (export \"proxy_on_configure\") (param i32 i32) (result i32) (i32.const 0))"
            ),
            "/0/config filter-config-refused",
        ),
        (
            format!(
                "{abi} {memory} {malloc}
                (func (export \"proxy_on_configure\") (param i32 i32) (result i32) unreachable)"
            ),
            "/0/config filter-start-failed",
        ),
        (format!("{abi} {memory} {malloc} (memory 1)"), "/0/config filter-start-failed"),
    ];
    for (text, wanted) in cases {
        bench.write_module("bad.wasm", &wat::parse_str(format!("(module {text})")).unwrap());
        let mut filter = FilterConfig::from_module("bad.wasm");
        filter.limits.startup_cpu = services::DurationConfig::from_millis(20);
        assert_eq!(refusal_code(bench.try_chain(&[filter])), wanted, "{text}");
    }
    bench.write_module("bad.wasm", b"(module)");
    assert_eq!(
        refusal_code(bench.try_chain(&[FilterConfig::from_module("bad.wasm")])),
        "/0/wasm filter-module-malformed"
    );
    assert_eq!(
        refusal_code(bench.try_chain(&[FilterConfig::from_module("none.wasm")])),
        "/0/wasm filter-module-unreadable"
    );
    let mut filter = bench.filter("good", "");
    filter.services = Some(vec!["nobody".to_owned()]);
    assert_eq!(refusal_code(bench.try_chain(&[filter])), "/0/services filter-service-unknown");
    let mut filter = bench.filter("good", "");
    filter.hosts = vec!["http://auth".to_owned()];
    assert_eq!(refusal_code(bench.try_chain(&[filter.clone()])), "/0/hosts filter-host-invalid");
    filter.hosts = vec!["auth".to_owned()];
    filter.dialect = crate::HostDialect::Strict;
    assert_eq!(refusal_code(bench.try_chain(&[filter])), "/0/hosts filter-host-invalid");
}

#[test]
fn only_filters_with_a_callback_buffer_request_bodies() {
    let bench = FilterFixture::new();
    let callback =
        |name: &str| format!("(func (export \"{name}\") (param i32 i32 i32) (result i32) (i32.const 0))");
    let named = ["proxy_on_request_headers", "proxy_on_response_body", "proxy_on_request_body"];
    let filters = named.map(|name| {
        let mut filter = bench.filter(name, &callback(name));
        filter.limits.buffer = services::BytesConfig(1_000);
        filter
    });
    assert_eq!(bench.chain(&filters[..2]).request_buffer(), 0);
    assert_eq!(bench.chain(&filters).request_buffer(), 1_000);
}

/// Refuses, traps or starts, depending on the first letter of its configuration, and writes the configuration
/// to a header.
const CONFIGURED: &str = r#"
    (func (export "proxy_on_configure") (param $id i32) (param $size i32) (result i32)
        (local $first i32)
        (call $want (i32.const 0) (call $buffer (i32.const 7) (i32.const 0) (i32.const 99)
            (i32.const 0) (i32.const 4)))
        (local.set $first (i32.load8_u (i32.load (i32.const 0))))
        (if (i32.eq (local.get $first) (i32.const 0x74)) (then unreachable))
        (i32.ne (local.get $first) (i32.const 0x6e)))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $want (i32.const 0) (call $buffer (i32.const 7) (i32.const 0) (i32.const 99)
            (i32.const 0) (i32.const 4)))
        (call $text (i32.const 0) «x-config»)
        (i32.const 0))"#;

#[tokio::test]
async fn bad_configurations_do_not_affect_running_filters() {
    let bench = FilterFixture::new();
    let with = |config: &str| {
        let mut filter = bench.filter("configured", CONFIGURED);
        filter.config = config.into();
        filter
    };
    let chain = bench.chain(&[with("good")]);
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let call = RequestCall::unlimited();
    let under_way = chain.run_http_exchange(
        get("/"),
        call.clone(),
        exchange_info(),
        async |request: Request<StreamedServiceBody>| {
            receiver.await.unwrap();
            echo(request).await
        },
    );
    let mut under_way = Box::pin(under_way);
    assert!((&mut under_way).now_or_never().is_none());
    assert_eq!(refusal_code(bench.try_chain(&[with("trap")])), "/0/config filter-start-failed");
    assert_eq!(refusal_code(bench.try_chain(&[with("no")])), "/0/config filter-config-refused");
    sender.send(()).unwrap();
    assert_eq!(collect_response(under_way.await.unwrap()).await.unwrap().header("got-x-config"), "good");
    assert_eq!(bench.stats().starts, 1);
}

#[tokio::test]
async fn routes_share_an_instance_and_keep_their_configurations() {
    let bench = FilterFixture::new();
    let with = |config: &str| {
        let mut filter = bench.filter("configured", CONFIGURED);
        filter.config = config.into();
        bench.chain(&[filter])
    };
    let (filter_chain, two) = (with("one"), with("second"));
    for (chain, config) in [(&filter_chain, "one"), (&two, "second"), (&filter_chain, "one")] {
        assert_eq!(send(chain, get("/")).await.unwrap().header("got-x-config"), config);
    }
    drop(filter_chain);
    assert_eq!(send(&two, get("/")).await.unwrap().header("got-x-config"), "second");
}

#[tokio::test]
async fn handles_a_hundred_reloads() {
    let bench = FilterFixture::new();
    let mut filter = bench.filter("configured", CONFIGURED);
    filter.config = "c".into();
    let mut chain = bench.chain(&[filter.clone()]);
    for number in 0..100 {
        filter.config = format!("c{number}").into();
        let next = bench.chain(&[filter.clone()]);
        next.start();
        assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
        chain = next;
        let answer = send(&chain, get("/")).await.unwrap();
        assert_eq!(answer.header("got-x-config"), format!("c{number}"));
    }
}
