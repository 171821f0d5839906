/* The host's functions for native debugging, replayed from a recording: with them a query is a normal program, with
 * breakpoints, printf and sanitizers. `orfa query debug` compiles this file with the query and the C environment.
 *
 *     q RECORDING        or ORFA_RECORDING=FILE q
 *
 * The answer goes to the standard output; the console and the reason of a failure go to the standard error. Results
 * (of calls, clock, random numbers) come from the recording, in its order; a program that makes different calls has
 * left its recording, and ends. Its output (log, status, header, answer) may differ.
 *
 * Set a breakpoint on orfa_stopped to inspect a program that leaves its recording or fails. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <orfa.h>
#include "yyjson.h"

/* Bytes in a recording: a text, or {"base64": "..."}. */
typedef struct {
    const char *data;
    size_t len;
} bytes;

static yyjson_val *recording, *next_call;
static size_t calls_left, number;
static bytes answer;
static int answered;

/* ---- The end ---- */

/* Reports the reason why a run ends without an answer. Set breakpoints here. */
__attribute__((noinline)) void orfa_stopped(const char *why) { fprintf(stderr, "orfa: %s\n", why); }

__attribute__((format(printf, 1, 2))) _Noreturn static void stop(const char *format, ...) {
    char why[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    fflush(stdout);
    orfa_stopped(why);
    exit(1);
}

/* Ends the run where the recorded run ended. */
_Noreturn static void stop_as_recorded(void) {
    yyjson_val *problem = yyjson_obj_get(yyjson_obj_get(recording, "end"), "problem");
    if (!problem) stop("host call %zu: the recorded run made no more calls", number);
    stop("the recorded run ended here: %s (%s)", yyjson_get_str(yyjson_obj_get(problem, "detail")),
         yyjson_get_str(yyjson_obj_get(problem, "code")));
}

/* ---- Reading the recording ---- */

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bytes from_base64(const char *text, size_t len) {
    char *data = malloc(len + 1);
    size_t size = 0;
    unsigned held = 0, bits = 0;
    for (size_t i = 0; i < len && base64_digit(text[i]) >= 0; i++) {
        held = held << 6 | (unsigned)base64_digit(text[i]);
        if ((bits += 6) >= 8) data[size++] = (char)(held >> (bits -= 8));
    }
    return (bytes){data, size};
}

static bytes bytes_of(yyjson_val *value) {
    yyjson_val *text = yyjson_is_obj(value) ? yyjson_obj_get(value, "base64") : value;
    bytes raw = {yyjson_get_str(text), yyjson_get_len(text)};
    return !raw.data ? (bytes){"", 0} : text == value ? raw : from_base64(raw.data, raw.len);
}

static yyjson_val *argument(yyjson_val *call, const char *name) {
    return yyjson_obj_get(yyjson_obj_get(call, "with"), name);
}

static int is_call(yyjson_val *call, const char *function) {
    return yyjson_equals_str(yyjson_obj_get(call, "function"), function);
}

/* Whether a recorded call is output of the program, which may differ from the recording. */
static int is_said(yyjson_val *call) {
    return is_call(call, "log") || is_call(call, "status") || is_call(call, "header") || is_call(call, "done") ||
           is_call(call, "fail");
}

static yyjson_val *take(void) {
    yyjson_val *call = next_call;
    next_call = --calls_left ? unsafe_yyjson_get_next(call) : NULL;
    return call;
}

static int32_t result_of(yyjson_val *call) { return (int32_t)yyjson_get_sint(yyjson_obj_get(call, "result")); }

/* Returns the recorded call that corresponds to the program's current call of this function. */
static yyjson_val *asked(const char *function) {
    number++;
    while (calls_left && is_said(next_call)) take();
    if (!calls_left) stop_as_recorded();
    yyjson_val *call = take();
    if (!is_call(call, function)) {
        stop("host call %zu: the program calls %s, where the recording has %s", number, function,
             yyjson_get_str(yyjson_obj_get(call, "function")));
    }
    yyjson_val *problem = yyjson_obj_get(yyjson_obj_get(recording, "end"), "problem");
    if (!calls_left && yyjson_get_bool(yyjson_obj_get(problem, "inside"))) stop_as_recorded();
    return call;
}

/* Returns the recorded result of an output function if it is the next recorded call. */
static int32_t said(const char *function) {
    number++;
    return calls_left && is_call(next_call, function) ? result_of(take()) : ORFA_OK;
}

/* ---- Comparing with the recording ---- */

static void expect_text(yyjson_val *call, const char *name, const void *data, size_t len) {
    bytes recorded = bytes_of(argument(call, name));
    if (recorded.len == len && !memcmp(recorded.data, data ? data : "", len)) return;
    stop("host call %zu: %s is called with %s %.*s, where the recording has %.*s", number,
         yyjson_get_str(yyjson_obj_get(call, "function")), name, (int)len, len ? (const char *)data : "",
         (int)recorded.len, recorded.data);
}

static void expect_number(yyjson_val *call, const char *name, int64_t value) {
    int64_t recorded = yyjson_get_sint(argument(call, name));
    if (recorded == value) return;
    stop("host call %zu: %s is called with %s %lld, where the recording has %lld", number,
         yyjson_get_str(yyjson_obj_get(call, "function")), name, (long long)value, (long long)recorded);
}

/* ---- The host's functions ---- */

static int32_t give(bytes from, void *data, uint32_t len) {
    memcpy(data, from.data, from.len < len ? from.len : len);
    return (int32_t)from.len;
}

/* Returns the answer of a call, or NULL if there was none. */
static yyjson_val *response_of(orfa_handle future, int32_t *error) {
    char key[16];
    snprintf(key, sizeof key, "%d", future);
    yyjson_val *received = yyjson_obj_get(yyjson_obj_get(recording, "responses"), key);
    *error = (int32_t)yyjson_get_sint(yyjson_obj_get(received, "error"));
    return yyjson_obj_get(received, "answer");
}

orfa_handle orfa_host_http(const orfa_request *request) {
    yyjson_val *call = asked("http");
    expect_text(call, "method", request->method, request->method_len);
    expect_text(call, "url", request->url, request->url_len);
    expect_text(call, "body", request->body, request->body_len);
    return result_of(call);
}

void orfa_host_Handle_del(orfa_handle handle) { expect_number(asked("Handle_del"), "handle", handle); }

int32_t orfa_host_Future_ready(orfa_handle future) {
    yyjson_val *call = asked("Future_ready");
    expect_number(call, "future", future);
    return result_of(call);
}

int32_t orfa_host_Future_wait(const orfa_handle *futures, uint32_t count, int32_t all) {
    yyjson_val *call = asked("Future_wait"), *recorded = argument(call, "futures");
    if (yyjson_arr_size(recorded) != count || yyjson_get_bool(argument(call, "all")) != !!all) {
        stop("host call %zu: Future_wait is called with other futures than in the recording", number);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (yyjson_get_int(yyjson_arr_get(recorded, i)) != futures[i]) {
            stop("host call %zu: Future_wait is called with future %d, where the recording has %d", number,
                 futures[i], yyjson_get_int(yyjson_arr_get(recorded, i)));
        }
    }
    return result_of(call);
}

int32_t orfa_host_Response_get(orfa_handle future, orfa_response *response) {
    yyjson_val *call = asked("Response_get");
    expect_number(call, "future", future);
    if (result_of(call) != ORFA_OK) return result_of(call);
    int32_t error;
    yyjson_val *answer = response_of(future, &error);
    *response = (orfa_response){0, error, 0, 0};
    if (!answer) return ORFA_OK;
    response->status = yyjson_get_int(yyjson_obj_get(answer, "status"));
    response->headers_len = bytes_of(yyjson_obj_get(answer, "headers")).len;
    response->body_len = bytes_of(yyjson_obj_get(answer, "body")).len;
    return ORFA_OK;
}

int32_t orfa_host_Response_read(orfa_handle future, int32_t part, void *data, uint32_t len) {
    yyjson_val *call = asked("Response_read");
    expect_number(call, "future", future);
    expect_number(call, "part", part);
    if (result_of(call) < 0) return result_of(call);
    int32_t error;
    yyjson_val *answer = response_of(future, &error);
    return give(bytes_of(yyjson_obj_get(answer, part == ORFA_BODY ? "body" : "headers")), data, len);
}

int32_t orfa_host_Response_json(orfa_handle future, const char *pointer, uint32_t pointer_len, void *data,
                                uint32_t len) {
    yyjson_val *call = asked("Response_json"), *part = yyjson_obj_get(call, "part");
    expect_number(call, "future", future);
    expect_text(call, "pointer", pointer, pointer_len);
    if (result_of(call) < 0) return result_of(call);
    int32_t error;
    bytes body = bytes_of(yyjson_obj_get(response_of(future, &error), "body"));
    if (!part) return give(bytes_of(yyjson_obj_get(call, "data")), data, len);
    size_t start = yyjson_get_uint(yyjson_arr_get(part, 0)), size = yyjson_get_uint(yyjson_arr_get(part, 1));
    if (start > body.len || size > body.len - start) stop("host call %zu: its part is outside of the response", number);
    return give((bytes){body.data + start, size}, data, len);
}

/* In a recorded run bodies have no index: each is read as a whole. */
int32_t orfa_host_Json_root(orfa_handle future, orfa_json_value *value, void *data, uint32_t len) {
    yyjson_val *call = asked("Json_root");
    expect_number(call, "future", future);
    bytes place = bytes_of(yyjson_obj_get(call, "data"));
    *value = (orfa_json_value){.kind = ORFA_JSON_NULL};
    memcpy(&value->node, place.data, place.len < sizeof value->node ? place.len : sizeof value->node);
    return result_of(call);
}

int32_t orfa_host_Json_member(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last,
                              orfa_json_value *value, void *data, uint32_t len) {
    asked("Json_member");
    stop("host call %zu: Json_member is not supported natively", number);
}

int32_t orfa_host_Json_column(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last,
                              orfa_json_value *values, uint32_t count, void *data, uint32_t len) {
    asked("Json_column");
    stop("host call %zu: Json_column is not supported natively", number);
}

int32_t orfa_host_Json_children(orfa_handle future, uint32_t node, void *data, uint32_t len) {
    asked("Json_children");
    stop("host call %zu: Json_children is not supported natively", number);
}

int32_t orfa_host_Json_text(orfa_handle future, uint32_t node, void *data, uint32_t len) {
    asked("Json_text");
    stop("host call %zu: Json_text is not supported natively", number);
}

int64_t orfa_host_clock(void) { return yyjson_get_sint(yyjson_obj_get(asked("clock"), "result")); }

void orfa_host_random(void *data, uint32_t len) {
    yyjson_val *call = asked("random");
    expect_number(call, "len", len);
    give(bytes_of(yyjson_obj_get(call, "data")), data, len);
}

int32_t orfa_host_status(int32_t code) {
    said("status");
    return code >= 200 && code < 600 ? ORFA_OK : ORFA_INVALID;
}

int32_t orfa_host_header(const char *name, uint32_t name_len, const char *value, uint32_t value_len) {
    (void)name, (void)name_len, (void)value, (void)value_len;
    return said("header");
}

void orfa_host_log(const char *text, uint32_t len) {
    said("log");
    fprintf(stderr, "%.*s\n", (int)len, text);
}

void orfa_host_fail(int32_t kind, const char *text, uint32_t len, uint32_t line, uint32_t column) {
    (void)kind, (void)line, (void)column;
    stop("the program failed: %.*s", (int)len, text);
}

void orfa_host_done(const void *data, uint32_t len) {
    said("done");
    if (answered++) stop("the program called `done` a second time");
    char *copy = malloc(len + 1);
    answer = (bytes){memcpy(copy, data, len), len};
}

/* ---- The program ---- */

static yyjson_val *read_recording(const char *file) {
    yyjson_read_err error;
    yyjson_doc *doc = yyjson_read_file(file, 0, NULL, &error);
    if (!doc) stop("%s is not a recording: %s, at byte %zu", file, error.msg, error.pos);
    yyjson_val *root = yyjson_doc_get_root(doc), *version = yyjson_obj_get(root, "version");
    if (!yyjson_is_int(version)) stop("%s is not a recording: it has no `version`", file);
    if (yyjson_get_int(version) != 1) stop("%s has version %d; this supports version 1", file, yyjson_get_int(version));
    return root;
}

int main(int count, char **arguments) {
    const char *file = count > 1 ? arguments[1] : getenv("ORFA_RECORDING");
    if (!file) stop("no recording: run `%s RECORDING`, or set ORFA_RECORDING", arguments[0]);
    recording = read_recording(file);
    yyjson_val *calls = yyjson_obj_get(recording, "calls");
    next_call = yyjson_arr_get_first(calls);
    calls_left = yyjson_arr_size(calls);
    bytes input = bytes_of(yyjson_obj_get(recording, "input"));
    char *copy = malloc(input.len + 16);
    orfa(memcpy(copy, input.data, input.len), (int)input.len);
    if (!answered) stop("the program ended without an answer");
    fwrite(answer.data, 1, answer.len, stdout);
    return 0;
}
