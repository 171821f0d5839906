//! Modules that call every host function in every callback, with random arguments. The host's memory for them
//! stays bounded, and every exchange ends.

use super::*;

/// Callbacks: the name, the number of parameters, and whether there is a result.
const CALLBACKS: &[(&str, usize, bool)] = &[
    ("proxy_on_context_create", 2, false),
    ("proxy_on_request_headers", 3, true),
    ("proxy_on_request_body", 3, true),
    ("proxy_on_request_trailers", 2, true),
    ("proxy_on_response_headers", 3, true),
    ("proxy_on_response_body", 3, true),
    ("proxy_on_response_trailers", 2, true),
    ("proxy_on_http_call_response", 5, false),
    ("proxy_on_grpc_receive_initial_metadata", 3, false),
    ("proxy_on_grpc_receive", 3, false),
    ("proxy_on_grpc_receive_trailing_metadata", 3, false),
    ("proxy_on_grpc_close", 3, false),
    ("proxy_on_tick", 1, false),
    ("proxy_on_queue_ready", 2, false),
    ("proxy_on_done", 1, true),
    ("proxy_on_log", 1, false),
    ("proxy_on_delete", 1, false),
];

/// Host functions that are not in [`IMPORTS`], with their parameters.
const OTHER_HOST_FUNCTIONS: &[(&str, &str)] = &[
    ("proxy_get_log_level", "i32"),
    ("proxy_get_current_time_nanoseconds", "i32"),
    ("proxy_get_configuration", "i32 i32"),
    ("proxy_get_header_map_size", "i32 i32"),
    ("proxy_continue_request", ""),
    ("proxy_continue_response", ""),
    ("proxy_clear_route_cache", ""),
    ("proxy_resolve_shared_queue", "i32 i32 i32 i32 i32"),
    ("proxy_increment_metric", "i32 i64"),
    ("proxy_record_metric", "i32 i64"),
    ("proxy_get_metric", "i32 i32"),
];

/// Generates a module that calls every host function in every callback. Each argument is, depending on the
/// seed, a small number, an address in the memory (lengths and addresses overlap), one at the end of it, or
/// any number.
fn hostile_module(seed: u64) -> Vec<u8> {
    let known = IMPORTS.iter().map(|(name, _, parameters)| (*name, vec!["i32"; *parameters]));
    let others = OTHER_HOST_FUNCTIONS.iter().map(|(name, types)| (*name, types.split_whitespace().collect()));
    let functions: Vec<(&str, Vec<&str>)> = known.chain(others).collect();
    let (mut imports, mut calls) = (String::new(), String::new());
    for (index, (name, types)) in functions.iter().enumerate() {
        let parameters = types.join(" ");
        imports.push_str(&format!(
            "(import \"env\" \"{name}\" (func $f{index} (param {parameters}) (result i32)))\n"
        ));
        let arguments: String = types.iter().map(|kind| format!("(call $any_{kind})")).collect();
        calls.push_str(&format!("(if (call $sometimes) (then (drop (call $f{index} {arguments}))))\n"));
    }
    let mut exports = String::new();
    for (name, parameters, returns) in CALLBACKS {
        let (result, value) =
            if *returns { ("(result i32)", "(i32.and (call $next) (i32.const 1))") } else { ("", "") };
        let parameters = "i32 ".repeat(*parameters);
        exports.push_str(&format!(
            "(func (export \"{name}\") (param {parameters}) {result} (call $all) {value})\n"
        ));
    }
    // Small numbers are the addresses of names of services, keys and headers.
    let text = format!(
        "(module {imports}
        (memory (export \"memory\") 4 16)
        (data (i32.const 0) \"auth\\00\\02\\00\\00\\00\\07\\00\\00\\00\\03\\00\\00\\00:method\\00GET\\00k\\00x-a\\00q\\00\")
        (global $seed (mut i64) (i64.const {seed}))
        (func (export \"proxy_abi_version_0_2_1\"))
        (func $next (result i32)
            (global.set $seed (i64.xor (global.get $seed) (i64.shl (global.get $seed) (i64.const 13))))
            (global.set $seed (i64.xor (global.get $seed) (i64.shr_u (global.get $seed) (i64.const 7))))
            (global.set $seed (i64.xor (global.get $seed) (i64.shl (global.get $seed) (i64.const 17))))
            (i32.wrap_i64 (i64.shr_u (global.get $seed) (i64.const 16))))
        (func $sometimes (result i32) (i32.ne (i32.and (call $next) (i32.const 7)) (i32.const 0)))
        (func $any_i32 (result i32)
            (local $kind i32)
            (local.set $kind (i32.and (call $next) (i32.const 15)))
            (if (i32.lt_u (local.get $kind) (i32.const 9)) (then (return (i32.and (call $next) (i32.const 7)))))
            (if (i32.lt_u (local.get $kind) (i32.const 12)) (then (return (i32.and (call $next) (i32.const 0x3ffff)))))
            (if (i32.lt_u (local.get $kind) (i32.const 13)) (then (return (i32.const 0x3fff8))))
            (if (i32.lt_u (local.get $kind) (i32.const 14)) (then (return (i32.const -1))))
            (call $next))
        (func $any_i64 (result i64) (i64.extend_i32_s (call $any_i32)))
        (func (export \"malloc\") (param i32) (result i32) (call $any_i32))
        (func $all {calls})
        {exports})"
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn large_request(path: &str) -> Request<StreamedServiceBody> {
    let trailers = http::HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    let body = piecewise_body(&["one", "two", "three"]).with_trailers(std::future::ready(Some(Ok(trailers))));
    Request::post(path).header("host", "example.org").header("x-a", "1").body(body.boxed_unsync()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn bounds_host_state_of_hostile_modules() {
    for seed in 1..40_u64 {
        let bench = FilterFixture::new();
        bench.write_module("hostile.wasm", &hostile_module(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut filter = FilterConfig::from_module("hostile.wasm");
        filter.limits.cpu = services::DurationConfig::from_millis(5000);
        filter.limits.buffer = services::BytesConfig(64 << 10);
        filter.limits.memory = services::BytesConfig(1 << 20);
        let Ok(chain) = bench.try_chain(&[filter]) else { continue };
        chain.start();
        for _ in 0..20 {
            let mirror = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
            let exchange = chain.run_http_exchange(
                large_request("/"),
                call_with_timeout(Duration::from_secs(5)),
                exchange_info(),
                mirror,
            );
            // An exchange ends at its deadline at the latest, with a response or without.
            if let Ok(response) = exchange.await {
                let _ = tokio::time::timeout(Duration::from_secs(100), collect_response(response)).await;
            }
        }
        let filters = &bench.filters;
        assert!(filters.shared_data("").size() <= crate::shared::MAX_BYTES, "{seed}");
        let (queues, bytes) = filters.queues.size();
        assert!(queues <= crate::shared::MAX_QUEUES && bytes <= crate::shared::MAX_BYTES, "{seed}");
        assert!(filters.metrics().len() <= 10_000, "{seed}");
    }
}
