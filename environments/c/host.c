/* The host's functions, under the names that queries import from the environment. The indirection costs one call,
 * and spares a query a second kind of import to compile. */
#include <orfa.h>

void orfa_Handle_del(orfa_handle handle) { orfa_host_Handle_del(handle); }

int32_t orfa_Future_ready(orfa_handle future) { return orfa_host_Future_ready(future); }

orfa_handle orfa_http(const orfa_request *request) { return orfa_host_http(request); }

int32_t orfa_Response_get(orfa_handle future, orfa_response *response) {
    return orfa_host_Response_get(future, response);
}

int32_t orfa_Response_read(orfa_handle future, int32_t part, void *data, uint32_t len) {
    return orfa_host_Response_read(future, part, data, len);
}

int32_t orfa_Response_json(orfa_handle future, const char *pointer, uint32_t pointer_len, void *data,
                           uint32_t len) {
    return orfa_host_Response_json(future, pointer, pointer_len, data, len);
}

int32_t orfa_Future_wait(const orfa_handle *futures, uint32_t count, int32_t all) {
    return orfa_host_Future_wait(futures, count, all);
}

int64_t orfa_clock(void) { return orfa_host_clock(); }

void orfa_random(void *data, uint32_t len) { orfa_host_random(data, len); }
