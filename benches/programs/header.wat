;; A filter that adds one header to each response: what the ABI itself costs.
(module
  (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "x-filter")
  (data (i32.const 32) "on")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    ;; 2: the response's headers.
    (drop (call $add (i32.const 2) (i32.const 16) (i32.const 8) (i32.const 32) (i32.const 2)))
    (i32.const 0)))
