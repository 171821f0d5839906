//! `orfa filter`: a module is tested without a gateway.

use super::{create_folder, lossy_text, run_orfa};

/// A filter that logs `yes` and adds `x-seen: yes` to the response. It refuses a config of exactly three
/// bytes.
const MODULE: &str = r#"(module
    (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "x-seen")
    (data (i32.const 32) "yes")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (i32.ne (local.get 1) (i32.const 3)))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $log (i32.const 2) (i32.const 32) (i32.const 3)))
        (drop (call $add (i32.const 2) (i32.const 16) (i32.const 6) (i32.const 32) (i32.const 3)))
        (i32.const 0)))"#;

fn module_folder() -> tempfile::TempDir {
    let folder = create_folder(&[]);
    std::fs::write(folder.path().join("m.wasm"), wat::parse_str(MODULE).expect("a module")).expect("written");
    folder
}

#[tokio::test]
async fn test_prints_calls_between_module_and_host_and_the_response() {
    let folder = module_folder();
    let arguments = [
        "filter",
        "test",
        "m.wasm",
        "--config",
        "four",
        "--request",
        "POST /a?b=1",
        "-H",
        "x-a: b",
        "--body",
        "hi",
        "--response",
        "201",
        "--response-body",
        "made",
    ];
    let output = run_orfa(folder.path(), &arguments).await;
    assert_eq!(output.status.code(), Some(0), "{}", lossy_text(&output.stderr));
    let said = lossy_text(&output.stdout);
    let places: Vec<_> = [
        "proxy_on_configure(",
        "  the service receives: POST /a?b=1\n",
        "proxy_on_response_headers(",
        "    info: yes\n",
        "    proxy_add_header_map_value(",
        "\n201 Created\n",
        "x-seen: yes\n",
        "\nmade\n",
    ]
    .iter()
    .map(|part| said.find(part).unwrap_or_else(|| panic!("{part:?} in {said}")))
    .collect();
    assert!(places.is_sorted(), "{said}");
}

#[tokio::test]
async fn test_reports_why_a_module_is_refused() {
    let folder = module_folder();
    let refused = run_orfa(folder.path(), &["filter", "test", "m.wasm", "--config", "abc"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        lossy_text(&refused.stderr).contains("(filter-config-refused)"),
        "{}",
        lossy_text(&refused.stderr)
    );
    let host =
        run_orfa(folder.path(), &["filter", "test", "m.wasm", "--config", "four", "--host", "a/b"]).await;
    assert!(lossy_text(&host.stderr).contains("(filter-host-invalid)"), "{}", lossy_text(&host.stderr));
    let missing = run_orfa(folder.path(), &["filter", "test", "none.wasm"]).await;
    assert!(
        lossy_text(&missing.stderr).contains("(filter-module-unreadable)"),
        "{}",
        lossy_text(&missing.stderr)
    );
    let output =
        run_orfa(folder.path(), &["filter", "test", "m.wasm", "--config", "four", "--request", "GET"]).await;
    assert_eq!(output.status.code(), Some(64));
    assert!(lossy_text(&output.stderr).contains("(bad-request)"), "{}", lossy_text(&output.stderr));
}
