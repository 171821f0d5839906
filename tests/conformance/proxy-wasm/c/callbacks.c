/* All callbacks of the specification. Each is logged and runs its section of the script.
 *
 * The start function and the allocator differ by version on purpose, so that the three modules cover every variant:
 * 0.1.0 has `_start` and `malloc`, 0.2.0 no start function and `malloc`, 0.2.1 `_initialize`, `main` and
 * `proxy_on_memory_allocate`. */
#include "abi.h"
#include "script.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if ABI == 10
EXPORT(proxy_abi_version_0_1_0) void version(void) {}
#define END
#define ENDED false
#elif ABI == 20
EXPORT(proxy_abi_version_0_2_0) void version(void) {}
#define END , uint32_t end
#define ENDED end
#else
EXPORT(proxy_abi_version_0_2_1) void version(void) {}
#define END , uint32_t end
#define ENDED end
#endif

#if ABI == 21
EXPORT(proxy_on_memory_allocate) void *allocate(size length) { return malloc(length); }
#else
EXPORT(malloc) void *allocate(size length) { return malloc(length); }
#endif

/* Set by `main`, which is called by the host after `_initialize`, or by `_start`. */
static bool main_ran;
#if ABI == 10
int main(void) { main_ran = true; return 0; }
#elif ABI == 21
EXPORT(__main_void) int ran(void) { main_ran = true; return 0; }
#endif

/* The contexts, by id modulo the size. */
static run *runs[65536];

static run *context(uint32_t id) {
    run *found = runs[id % 65536];
    if (found) return found;
    return runs[id % 65536] = calloc(1, sizeof *found);
}

EXPORT(proxy_on_context_create) void context_create(uint32_t id, uint32_t parent) {
    run *run = context(id);
    *run = (struct run){ .id = id, .script = parent ? context(parent)->script : NULL };
    if (parent) enter(run, "context_create", "context_create");
}

EXPORT(proxy_on_vm_start) uint32_t vm_start(uint32_t id, size length) {
    const char *script = buffer(6);
    run run = { .id = id, .script = script ? strdup(script) : "" };
    enter(&run, "vm_start", "vm_start size=%u main=%s", length, main_ran ? "true" : "false");
    return !run.refused;
}

EXPORT(proxy_on_configure) uint32_t configure(uint32_t id, size length) {
    run *run = context(id);
    const char *script = buffer(7);
    run->script = script ? strdup(script) : "";
    enter(run, "configure", "configure size=%u", length);
    return !run->refused;
}

EXPORT(proxy_on_request_headers) uint32_t request_headers(uint32_t id, uint32_t count END) {
    const char *end_text = ENDED ? "true" : "false";
    return pass(context(id), "request_headers", ENDED, "request_headers end=%s n=%u", end_text, count);
}
EXPORT(proxy_on_request_body) uint32_t request_body(uint32_t id, size length, uint32_t end) {
    return pass(context(id), "request_body", end, "request_body size=%u end=%s", length, end ? "true" : "false");
}
EXPORT(proxy_on_request_trailers) uint32_t request_trailers(uint32_t id, uint32_t count) {
    return pass(context(id), "request_trailers", true, "request_trailers n=%u", count);
}
EXPORT(proxy_on_response_headers) uint32_t response_headers(uint32_t id, uint32_t count END) {
    const char *end_text = ENDED ? "true" : "false";
    return pass(context(id), "response_headers", ENDED, "response_headers end=%s n=%u", end_text, count);
}
EXPORT(proxy_on_response_body) uint32_t response_body(uint32_t id, size length, uint32_t end) {
    return pass(context(id), "response_body", end, "response_body size=%u end=%s", length, end ? "true" : "false");
}
EXPORT(proxy_on_response_trailers) uint32_t response_trailers(uint32_t id, uint32_t count) {
    return pass(context(id), "response_trailers", true, "response_trailers n=%u", count);
}

/* Returns the context that made a call. The host enters the callback with the plugin's context. */
uint32_t caller_of(uint32_t call);

EXPORT(proxy_on_http_call_response)
void http_call_response(uint32_t plugin, uint32_t call, uint32_t headers, size length, uint32_t trailers) {
    uint32_t caller = caller_of(call);
    if (caller != plugin && proxy_set_effective_context(caller) != OK) return;
    run *run = context(caller);
    const char *name = call_name(call);
    enter(run, "call", "call %s answered=%s size=%u trailers=%u", name, headers ? "true" : "false", length, trailers);
    char section[64];
    snprintf(section, sizeof section, "call/%s", name);
    enter(run, section, "%s", section);
}
EXPORT(proxy_on_grpc_receive_initial_metadata) void grpc_initial(uint32_t plugin, uint32_t call, uint32_t count) {
    proxy_set_effective_context(caller_of(call));
    enter(context(caller_of(call)), "grpc_initial_metadata", "grpc_initial_metadata");
}
EXPORT(proxy_on_grpc_receive) void grpc_receive(uint32_t plugin, uint32_t call, size length) {
    proxy_set_effective_context(caller_of(call));
    enter(context(caller_of(call)), "grpc_receive", "grpc_receive size=%u", length);
}
EXPORT(proxy_on_grpc_receive_trailing_metadata) void grpc_trailing(uint32_t plugin, uint32_t call, uint32_t count) {
    proxy_set_effective_context(caller_of(call));
    enter(context(caller_of(call)), "grpc_trailing_metadata", "grpc_trailing_metadata");
}
EXPORT(proxy_on_grpc_close) void grpc_closed(uint32_t plugin, uint32_t call, uint32_t code) {
    proxy_set_effective_context(caller_of(call));
    enter(context(caller_of(call)), "grpc_close", "grpc_close status=%u", code);
}

EXPORT(proxy_on_tick) void tick(uint32_t id) { enter(context(id), "tick", "tick"); }
EXPORT(proxy_on_queue_ready) void queue_ready(uint32_t id, uint32_t queue) {
    context(id)->queue = queue;
    enter(context(id), "queue_ready", "queue_ready");
}
#if ABI != 10
EXPORT(proxy_on_foreign_function) void foreign_function(uint32_t id, uint32_t function, size length) {
    enter(context(id), "foreign_function", "foreign_function size=%u", length);
}
#endif

EXPORT(proxy_on_done) uint32_t done(uint32_t id) {
    context(id)->refused = false;
    enter(context(id), "done", "done");
    return !context(id)->refused;
}
EXPORT(proxy_on_log) void logged(uint32_t id) { enter(context(id), "log", "log"); }
EXPORT(proxy_on_delete) void deleted(uint32_t id) { enter(context(id), "delete", "delete"); }

/* Current hosts don't call these; the AssemblyScript SDK exports them. */
EXPORT(proxy_validate_configuration) uint32_t validate(uint32_t id, size length) { return 1; }
EXPORT(proxy_on_request_metadata) uint32_t request_metadata(uint32_t id, uint32_t count) { return 0; }
EXPORT(proxy_on_response_metadata) uint32_t response_metadata(uint32_t id, uint32_t count) { return 0; }
EXPORT(proxy_on_grpc_trailing_metadata) void old_trailing(uint32_t id, uint32_t call, uint32_t count) {}
