/* Calls to services: a format becomes a request, a future becomes a status, a text or JSON.
 *
 * Each call's method and URL are stored, so that an error that ends the run can name them. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "environment.h"

typedef struct call_s {
    struct call_s *next;
    orfa_handle future;
    const char *method;
    const char *url;
} call;

/* Answers of at least this length stay with the host: parsing a smaller one is faster than host calls. */
enum { HEADERS = 32, LAZY_BYTES = 4096 };

static call *calls;
static orfa_header_field headers[HEADERS];
static uint32_t header_count;

/* ---- Sending ---- */

static char *copy(const char *string) {
    char *own = strdup(string);
    if (!own) out_of_memory();
    return own;
}

void orfa_with(const char *name, const char *value) {
    if (header_count == HEADERS) orfa_fail("a call can have %d headers", HEADERS);
    headers[header_count++] = (orfa_header_field){copy(name), strlen(name), copy(value), strlen(value)};
}

static orfa_future send(const char *method, const char *url, const char *body, va_list list) {
    text url_text = {0}, body_text = {0};
    arguments args;
    va_copy(args.list, list);
    format_url(&url_text, url, &args, strcmp(method, "GET") && strcmp(method, "HEAD"));
    text_terminated(&url_text);
    if (body) {
        format_template(&body_text, body, &args);
        orfa_with("content-type", "application/json");
    }
    orfa_request request = {method, strlen(method), url_text.data, url_text.len,
                            headers, header_count, body_text.data, body_text.len};
    header_count = 0;
    call *sent = orfa_alloc(sizeof *sent);
    *sent = (call){calls, orfa_host_http(&request), method, url_text.data};
    calls = sent;
    free(body_text.data);
    return sent->future;
}

/* Calls `send` from a variadic function whose last named parameter is `last`. */
#define SEND(method, body, last)                        \
    va_list list;                                       \
    va_start(list, last);                               \
    orfa_future future = send(method, url, body, list); \
    va_end(list)

orfa_future orfa_get(const char *url, ...) {
    SEND("GET", NULL, url);
    return future;
}

orfa_future orfa_delete(const char *url, ...) {
    SEND("DELETE", NULL, url);
    return future;
}

orfa_future orfa_post(const char *url, const char *body, ...) {
    SEND("POST", body, body);
    return future;
}

orfa_future orfa_put(const char *url, const char *body, ...) {
    SEND("PUT", body, body);
    return future;
}

orfa_future orfa_patch(const char *url, const char *body, ...) {
    SEND("PATCH", body, body);
    return future;
}

orfa_future orfa_send(const char *method, const char *url, const char *body, ...) {
    SEND(copy(method), body, body);
    return future;
}

orfa_value orfa_get_json(const char *url, ...) {
    SEND("GET", NULL, url);
    return orfa_wait_json(future);
}

/* ---- Waiting ---- */

static orfa_response response_of(orfa_future future) {
    orfa_response response = {0, future < 0 ? future : ORFA_INVALID, 0, 0};
    if (future <= 0) return response;
    orfa_host_Future_wait(&future, 1, 1);
    orfa_host_Response_get(future, &response);
    return response;
}

int orfa_wait(orfa_future future) { return response_of(future).status; }

int orfa_status_of(orfa_future future) { return response_of(future).status; }

int orfa_error_of(orfa_future future) {
    orfa_response response = response_of(future);
    return response.status ? ORFA_OK : response.error;
}

void orfa_wait_all(const orfa_future *futures, int count) {
    for (int i = 0; i < count; i++) {
        if (futures[i] > 0) orfa_host_Future_wait(&futures[i], 1, 1);
    }
}

int orfa_wait_any(const orfa_future *futures, int count) {
    orfa_future *open = orfa_alloc((count > 0 ? count : 0) * (sizeof *open + sizeof(int)));
    int *places = (int *)(open + (count > 0 ? count : 0));
    int found = -1, opened = 0;
    for (int i = 0; i < count && found < 0; i++) {
        if (futures[i] < 0) found = i;
        if (futures[i] > 0) open[opened] = futures[i], places[opened++] = i;
    }
    if (found < 0 && opened) found = places[orfa_host_Future_wait(open, opened, 0)];
    free(open);
    return found;
}

/* ---- Responses ---- */

const char *orfa_reason(int code) {
    switch (code) {
    case ORFA_OK: return "the call succeeded";
    case ORFA_NOT_READY: return "the call is still in progress";
    case ORFA_MISSING: return "there is no such value";
    case ORFA_FORBIDDEN: return "the gateway's rules forbid the call";
    case ORFA_UNKNOWN_SERVICE: return "there is no such service on this route";
    case ORFA_NOT_JSON: return "the body is not JSON";
    case ORFA_UNREACHABLE: return "there is no connection to the service";
    case ORFA_TIMEOUT: return "the service did not answer in time";
    case ORFA_BROKEN: return "the service broke off the response, or it was not HTTP";
    case ORFA_TOO_DEEP: return "the JSON is nested too deeply";
    default: return "a handle, pointer or argument is not valid";
    }
}

static const call *call_of(orfa_future future) {
    static const call none = {NULL, 0, "a call", "that was never made"};
    const call *made = calls;
    while (made && made->future != future) made = made->next;
    return made ? made : &none;
}

/* Returns the response of a successful call. Ends the run if the call failed or its status is not 2xx. */
static orfa_response expected(orfa_future future) {
    orfa_response response = response_of(future);
    const call *made = call_of(future);
    if (!response.status) orfa_fail("%s %s: %s", made->method, made->url, orfa_reason(response.error));
    if (response.status < 200 || response.status > 299) {
        orfa_fail("%s %s answered %d", made->method, made->url, response.status);
    }
    return response;
}

static orfa_value body_json(orfa_future future, uint32_t len, size_t *position) {
    char *room = json_room(len);
    orfa_host_Response_read(future, ORFA_BODY, room, len);
    return json_read(room, len, position);
}

/* Returns the JSON of an answer, or NULL with a code and a position if it has none. */
static orfa_value answer_json(orfa_future future, uint32_t len, int *code, size_t *position) {
    *code = ORFA_OK;
    orfa_value value = len < LAZY_BYTES ? NULL : lazy_root(future, code, position);
    if (value || *code != ORFA_OK || !len) return value;
    value = body_json(future, len, position);
    if (!value) *code = ORFA_NOT_JSON;
    return value;
}

orfa_value orfa_wait_json(orfa_future future) {
    size_t position;
    int code;
    orfa_value value = answer_json(future, expected(future).body_len, &code, &position);
    if (code == ORFA_OK) return value;
    const call *made = call_of(future);
    const char *what = code == ORFA_NOT_JSON ? "is not JSON" : "is nested too deeply";
    orfa_fail("%s %s: its body %s, at byte %u", made->method, made->url, what, (unsigned)position);
}

int orfa_wait_ok(orfa_future future) { return expected(future).status; }

orfa_value orfa_try_json(orfa_future future) {
    orfa_response response = response_of(future);
    size_t position;
    int code;
    return response.status ? answer_json(future, response.body_len, &code, &position) : NULL;
}

static char *part_of(orfa_future future, int part, uint32_t len) {
    char *data = orfa_alloc(len + 1);
    orfa_host_Response_read(future, part, data, len);
    data[len] = 0;
    return data;
}

const char *orfa_body_of(orfa_future future, int *len) {
    orfa_response response = response_of(future);
    if (len) *len = response.body_len;
    return response.status ? part_of(future, ORFA_BODY, response.body_len) : NULL;
}

const char *orfa_header_of(orfa_future future, const char *name) {
    orfa_response response = response_of(future);
    if (!response.status) return NULL;
    uint32_t len = strlen(name);
    char *line = part_of(future, ORFA_HEADERS, response.headers_len);
    for (char *end; (end = strstr(line, "\r\n")); line = end + 2) {
        if (strncasecmp(line, name, len) || line[len] != ':') continue;
        *end = 0;
        return line + len + 1 + strspn(line + len + 1, " ");
    }
    return NULL;
}
