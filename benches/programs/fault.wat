;; A filter that answers each request itself, with 503 and "fault injection".
(module
  (import "env" "proxy_send_local_response" (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "fault injection")
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $respond (i32.const 503) (i32.const 0) (i32.const 0) (i32.const 16) (i32.const 15)
      (i32.const 0) (i32.const 0) (i32.const -1)))
    ;; 1: pause, as there is nothing to go on with.
    (i32.const 1)))
