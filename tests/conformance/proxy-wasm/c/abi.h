/* The Proxy-Wasm ABI for modules in C, following the specifications of 0.1.0, 0.2.0 and 0.2.1.
 *
 * ABI is 10, 20 or 21. Functions that a version lacks are not declared, so that its module cannot import them.
 * Addresses are 32 bits wide; `size` corresponds to size_t in the specification. */
#pragma once
#include <stdint.h>

typedef uint32_t size;
typedef uint32_t status;

#define HOST(name) __attribute__((import_module("env"), import_name("proxy_" #name))) status proxy_##name
#define EXPORT(name) __attribute__((export_name(#name)))

enum { OK, NOT_FOUND, BAD_ARGUMENT, SERIALIZATION_FAILURE, PARSE_FAILURE, INVALID_MEMORY_ACCESS = 6, EMPTY, CAS_MISMATCH,
       INTERNAL_FAILURE = 10, UNIMPLEMENTED = 12 };
enum { CONTINUE, PAUSE };

HOST(log)(uint32_t level, const char *message, size length);
HOST(get_current_time_nanoseconds)(uint64_t *time);
HOST(set_tick_period_milliseconds)(uint32_t period);
HOST(set_effective_context)(uint32_t context);
HOST(done)(void);
HOST(get_status)(uint32_t *code, char **message, size *length);

HOST(get_buffer_bytes)(uint32_t buffer, size start, size most, char **bytes, size *length);
HOST(set_buffer_bytes)(uint32_t buffer, size start, size replaced, const char *bytes, size length);
HOST(get_buffer_status)(uint32_t buffer, size *length, uint32_t *flags);

HOST(get_header_map_size)(uint32_t map, size *bytes);
HOST(get_header_map_pairs)(uint32_t map, char **bytes, size *length);
HOST(set_header_map_pairs)(uint32_t map, const char *bytes, size length);
HOST(get_header_map_value)(uint32_t map, const char *name, size name_length, char **value, size *length);
HOST(add_header_map_value)(uint32_t map, const char *name, size name_length, const char *value, size length);
HOST(replace_header_map_value)(uint32_t map, const char *name, size name_length, const char *value, size length);
HOST(remove_header_map_value)(uint32_t map, const char *name, size name_length);

HOST(get_property)(const char *path, size path_length, char **value, size *length);
HOST(set_property)(const char *path, size path_length, const char *value, size length);

HOST(send_local_response)(uint32_t code, const char *details, size details_length, const char *body, size body_length,
                          const char *headers, size headers_length, uint32_t grpc);
HOST(http_call)(const char *upstream, size upstream_length, const char *headers, size headers_length, const char *body,
                size body_length, const char *trailers, size trailers_length, uint32_t timeout, uint32_t *call);
HOST(grpc_call)(const char *upstream, size upstream_length, const char *service, size service_length, const char *method,
                size method_length, const char *metadata, size metadata_length, const char *message,
                size message_length, uint32_t timeout, uint32_t *call);
HOST(grpc_stream)(const char *upstream, size upstream_length, const char *service, size service_length,
                  const char *method, size method_length, const char *metadata, size metadata_length, uint32_t *call);
HOST(grpc_send)(uint32_t call, const char *message, size length, uint32_t end);
HOST(grpc_cancel)(uint32_t call);
HOST(grpc_close)(uint32_t call);

HOST(get_shared_data)(const char *key, size key_length, char **value, size *length, uint32_t *cas);
HOST(set_shared_data)(const char *key, size key_length, const char *value, size length, uint32_t cas);
HOST(register_shared_queue)(const char *name, size length, uint32_t *queue);
HOST(resolve_shared_queue)(const char *vm, size vm_length, const char *name, size length, uint32_t *queue);
HOST(enqueue_shared_queue)(uint32_t queue, const char *value, size length);
HOST(dequeue_shared_queue)(uint32_t queue, char **value, size *length);
HOST(define_metric)(uint32_t kind, const char *name, size length, uint32_t *metric);
HOST(increment_metric)(uint32_t metric, int64_t by);
HOST(record_metric)(uint32_t metric, uint64_t value);
HOST(get_metric)(uint32_t metric, uint64_t *value);

#if ABI == 10
HOST(continue_request)(void);
HOST(continue_response)(void);
HOST(clear_route_cache)(void);
HOST(get_configuration)(char **bytes, size *length);
#else
HOST(continue_stream)(uint32_t stream);
HOST(close_stream)(uint32_t stream);
HOST(call_foreign_function)(const char *name, size name_length, const char *argument, size argument_length,
                            char **result, size *length);
#endif
#if ABI == 21
HOST(get_log_level)(uint32_t *level);
#endif
