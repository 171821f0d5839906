/* The raw ABI of an ORFA query. GENERATED from crates/query-abi by `cargo xtask generate`: don't edit.
 *
 * These are the host's own functions, exactly as a module imports them. To write a query, include
 * orfa.h, which is built on them. Addresses and lengths are 32 bits wide; text needs no NUL. */
#ifndef ORFA_ABI_H
#define ORFA_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A future, or the response that it became. Positive; a negative `orfa_code` if no call was made. */
typedef int32_t orfa_handle;

/* A header of a request. */
typedef struct orfa_header_field {
    const char *name;
    uint32_t name_len;
    const char *value;
    uint32_t value_len;
} orfa_header_field;

/* A request. The host part of `url` is the name of a registered service. */
typedef struct orfa_request {
    const char *method;
    uint32_t method_len;
    const char *url;
    uint32_t url_len;
    const orfa_header_field *headers;
    uint32_t header_count;
    const void *body;
    uint32_t body_len;
} orfa_request;

/* The result of a call. `status` is 0 if there is no response; then `error` is an `orfa_code`. */
typedef struct orfa_response {
    int32_t status;
    int32_t error;
    uint32_t headers_len;
    uint32_t body_len;
} orfa_response;

/* A value of a JSON body. `kind` is an `orfa_json_kind`; `len` counts the bytes of a text, the items of an
 * array or the members of an object. */
typedef struct orfa_json_value {
    uint32_t kind;
    uint32_t len;
    union {
        uint64_t whole; /* as int64_t if it is negative */
        double real;
        struct {
            uint32_t text; /* the address of a text, 0 if it did not fit; the byte length of a container's text */
            uint32_t node; /* the position of the value, which identifies it in the functions below */
        };
    };
} orfa_json_value;

/* Results of host functions, and reasons for which a call has no response. */
enum orfa_code {
    ORFA_OK = 0, /* success */
    ORFA_NOT_READY = -1, /* the call is still in progress */
    ORFA_MISSING = -2, /* the value does not exist */
    ORFA_INVALID = -3, /* the arguments are invalid */
    ORFA_FORBIDDEN = -4, /* the gateway's rules forbid it */
    ORFA_UNKNOWN_SERVICE = -5, /* no such service on this route */
    ORFA_NOT_JSON = -6, /* the body is not JSON */
    ORFA_UNREACHABLE = -7, /* no connection to the service */
    ORFA_TIMEOUT = -8, /* the service did not respond in time */
    ORFA_BROKEN = -9, /* the service broke off the response, or it was not HTTP */
    ORFA_TOO_DEEP = -10, /* the JSON is nested too deeply */
};

/* The parts of a response that Response_read reads. */
enum orfa_part {
    ORFA_BODY = 0, /* the body, after content decoding */
    ORFA_HEADERS = 1, /* the headers, as lines that end in CR LF */
};

/* The kinds of values in a JSON body. */
enum orfa_json_kind {
    ORFA_JSON_NULL = 0, /* null */
    ORFA_JSON_FALSE = 1, /* false */
    ORFA_JSON_TRUE = 2, /* true */
    ORFA_JSON_UNSIGNED = 3, /* a whole number of at least 0, in `whole` */
    ORFA_JSON_NEGATIVE = 4, /* a whole number below 0, in `whole` */
    ORFA_JSON_REAL = 5, /* another number, in `real` */
    ORFA_JSON_BIG = 6, /* a number outside of these ranges, as text with its original spelling */
    ORFA_JSON_STRING = 7, /* a text, in UTF-8 without escapes */
    ORFA_JSON_UNPAIRED = 8, /* a text in which an unpaired surrogate was replaced by U+FFFD */
    ORFA_JSON_ARRAY = 9, /* an array of `len` items */
    ORFA_JSON_OBJECT = 10, /* an object of `len` members */
    ORFA_JSON_MISSING = 11, /* no value: the member does not exist */
};

/* Failures with which a program ends itself. */
enum orfa_failure {
    ORFA_REFUSED = 0, /* the program gave up on purpose */
    ORFA_THREW = 1, /* an exception that was not caught */
    ORFA_SYNTAX = 2, /* the source does not parse */
    ORFA_STALLED = 3, /* its promise can never settle */
    ORFA_BAD_ANSWER = 4, /* the returned value can't be a response */
    ORFA_MEMORY = 5, /* the environment ran out of memory */
};

/* Submits the response body. The bytes are copied. A second call ends the run with program-done-twice;
 * a run that returns without a call ends with program-no-answer. */
__attribute__((import_module("orfa"), import_name("done")))
void orfa_host_done(const void *data, uint32_t len);

/* Deletes a future or the response it became, and frees what the host held for it. A call that is
 * still in progress is cancelled. A handle that does not exist traps, program-bad-handle. */
__attribute__((import_module("orfa"), import_name("Handle_del")))
void orfa_host_Handle_del(orfa_handle handle);

/* 1 if the call has ended, successfully or not, 0 if it is in progress. */
__attribute__((import_module("orfa"), import_name("Future_ready")))
int32_t orfa_host_Future_ready(orfa_handle future);

/* Sends a request to a registered service and returns at once. The request is copied. The result is a
 * handle above 0. A request that may not be sent (an unknown service, a method, path or header against
 * the rules) ends the run with a problem that contains the reason. */
__attribute__((import_module("orfa"), import_name("http")))
orfa_handle orfa_host_http(const orfa_request *request);

/* Fills response if the call has ended and returns ORFA_OK; ORFA_NOT_READY if it has not. If there is
 * no response, status is 0 and error is the reason. */
__attribute__((import_module("orfa"), import_name("Response_get")))
int32_t orfa_host_Response_get(orfa_handle future, orfa_response *response);

/* Copies a part of a response (ORFA_BODY or ORFA_HEADERS, the latter as name: value lines ending in CR
 * LF) to data, len bytes at most, and returns the whole length of the part, or an orfa_code below 0. */
__attribute__((import_module("orfa"), import_name("Response_read")))
int32_t orfa_host_Response_read(orfa_handle future, int32_t part, void *data, uint32_t len);

/* Copies the JSON text of the value at a JSON Pointer (RFC 6901) in the body to data, len bytes at
 * most, and returns the whole length of the text; ORFA_MISSING if the value does not exist,
 * ORFA_NOT_JSON if the body is not JSON. */
__attribute__((import_module("orfa"), import_name("Response_json")))
int32_t orfa_host_Response_json(orfa_handle future, const char *pointer, uint32_t pointer_len, void *data, uint32_t len);

/* Fills value with the JSON value of the whole body, and returns ORFA_OK. The first call validates the
 * body and builds an index of it, which counts towards the run's memory until Handle_del. For a
 * response of more than 128 KiB it has to precede the functions below, which return ORFA_NOT_READY
 * until then. With ORFA_NOT_JSON and ORFA_TOO_DEEP, node of value is the position in bytes. A text is
 * copied to data if len bytes can hold it and a trailing NUL. */
__attribute__((import_module("orfa"), import_name("Json_root")))
int32_t orfa_host_Json_root(orfa_handle future, orfa_json_value *value, void *data, uint32_t len);

/* Like Json_root, for a member of the object at node. Of members with equal names it uses the first,
 * or the last if last is not 0. ORFA_MISSING if there is none. */
__attribute__((import_module("orfa"), import_name("Json_member")))
int32_t orfa_host_Json_member(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last, orfa_json_value *value, void *data, uint32_t len);

/* Like Json_member, for the array item at node and those after it, count at most, and 1024: fills a
 * value for each, ORFA_JSON_MISSING if an item has no such member, and returns their number. It stops
 * at the end of the array, or before the first text that does not fit into data. */
__attribute__((import_module("orfa"), import_name("Json_column")))
int32_t orfa_host_Json_column(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last, orfa_json_value *values, uint32_t count, void *data, uint32_t len);

/* Writes an orfa_json_value for each item of the array at node, or two for each member of the object,
 * its name and its value, followed by their texts, each with a NUL. Returns the number of bytes
 * needed; if it is more than len, the bytes written have no meaning. data is aligned to 8. */
__attribute__((import_module("orfa"), import_name("Json_children")))
int32_t orfa_host_Json_children(orfa_handle future, uint32_t node, void *data, uint32_t len);

/* Copies the text of the value at node, as the body contains it, to data, len bytes at most, and
 * returns its whole length. */
__attribute__((import_module("orfa"), import_name("Json_text")))
int32_t orfa_host_Json_text(orfa_handle future, uint32_t node, void *data, uint32_t len);

/* Waits until one (all = 0) or all of the futures have ended. Returns the index of the first that has
 * ended, or ORFA_MISSING for no futures. */
__attribute__((import_module("orfa"), import_name("Future_wait")))
int32_t orfa_host_Future_wait(const orfa_handle *futures, uint32_t count, int32_t all);

/* Sets the response's status, 200 to 599. ORFA_INVALID for any other. */
__attribute__((import_module("orfa"), import_name("status")))
int32_t orfa_host_status(int32_t code);

/* Sets a header of the response. ORFA_INVALID for an invalid header; a name that is not on the
 * allow-list ends the run with answer-header. */
__attribute__((import_module("orfa"), import_name("header")))
int32_t orfa_host_header(const char *name, uint32_t name_len, const char *value, uint32_t value_len);

/* Milliseconds since 1970-01-01 UTC, deliberately coarse. */
__attribute__((import_module("orfa"), import_name("clock")))
int64_t orfa_host_clock(void);

/* Fills data with random bytes, different in every run. */
__attribute__((import_module("orfa"), import_name("random")))
void orfa_host_random(void *data, uint32_t len);

/* Adds a line to the console: a run that fails includes the last 4 KB of it in its problem. */
__attribute__((import_module("orfa"), import_name("log")))
void orfa_host_log(const char *text, uint32_t len);

/* Ends the run as failed by the program itself: kind is an orfa_failure. line and column count from 1,
 * or are 0 if unknown. Does not return. */
__attribute__((import_module("orfa"), import_name("fail")))
void orfa_host_fail(int32_t kind, const char *text, uint32_t len, uint32_t line, uint32_t column);

#ifdef __cplusplus
}
#endif

#endif
