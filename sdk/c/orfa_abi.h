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

/* A future, or the response that it became. Above 0; an `orfa_code` below 0 where no call was made. */
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

/* What came of a call. `status` is 0 where no answer came; then `error` is an `orfa_code`. */
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
        uint64_t whole; /* as int64_t where it is negative */
        double real;
        struct {
            uint32_t text; /* the address of a text, 0 where it found no room; of a container the bytes of its text */
            uint32_t node; /* where the value begins: how the functions below name it */
        };
    };
} orfa_json_value;

/* What a host function answers, and why a call brought no response. */
enum orfa_code {
    ORFA_OK = 0, /* it went well */
    ORFA_NOT_READY = -1, /* the call is still under way */
    ORFA_MISSING = -2, /* there is no such value */
    ORFA_INVALID = -3, /* the arguments make no sense */
    ORFA_FORBIDDEN = -4, /* the rules of the gateway forbid it */
    ORFA_UNKNOWN_SERVICE = -5, /* no such service on this route */
    ORFA_NOT_JSON = -6, /* the body is not JSON */
    ORFA_UNREACHABLE = -7, /* no connection to the service */
    ORFA_TIMEOUT = -8, /* the service did not answer in time */
    ORFA_BROKEN = -9, /* the service broke off, or sent no HTTP */
    ORFA_TOO_DEEP = -10, /* the JSON is nested too deeply */
};

/* The parts that Response_read reads. */
enum orfa_part {
    ORFA_BODY = 0, /* the body, after content decoding */
    ORFA_HEADERS = 1, /* the headers, as lines that end in CR LF */
};

/* What a value of a JSON body is. */
enum orfa_json_kind {
    ORFA_JSON_NULL = 0, /* null */
    ORFA_JSON_FALSE = 1, /* false */
    ORFA_JSON_TRUE = 2, /* true */
    ORFA_JSON_UNSIGNED = 3, /* a whole number from 0 on, in `whole` */
    ORFA_JSON_NEGATIVE = 4, /* a whole number below 0, in `whole` */
    ORFA_JSON_REAL = 5, /* another number, in `real` */
    ORFA_JSON_BIG = 6, /* a number that is none of them, as it was spelt: a text */
    ORFA_JSON_STRING = 7, /* a text, in UTF-8 without its escapes */
    ORFA_JSON_UNPAIRED = 8, /* the same; an unpaired surrogate was replaced by U+FFFD */
    ORFA_JSON_ARRAY = 9, /* an array of `len` items */
    ORFA_JSON_OBJECT = 10, /* an object of `len` members */
    ORFA_JSON_MISSING = 11, /* no value: there is no such member */
};

/* How a program ended itself. */
enum orfa_failure {
    ORFA_REFUSED = 0, /* the program gave up on purpose */
    ORFA_THREW = 1, /* an exception that nobody caught */
    ORFA_SYNTAX = 2, /* the source does not parse */
    ORFA_STALLED = 3, /* its promise can never settle */
    ORFA_BAD_ANSWER = 4, /* what it returned can't be an answer */
    ORFA_MEMORY = 5, /* the environment ran out of memory */
};

/* Submits the answer's body. The bytes are copied. A second call ends the run with program-done-twice;
 * a run that returns without a call ends with program-no-answer. */
__attribute__((import_module("orfa"), import_name("done")))
void orfa_host_done(const void *data, uint32_t len);

/* Deletes a future or the response it became, and frees what the host held for it. A call that is still
 * under way is cancelled. A handle that does not exist is a trap, program-bad-handle. */
__attribute__((import_module("orfa"), import_name("Handle_del")))
void orfa_host_Handle_del(orfa_handle handle);

/* 1 if the call has ended, in whichever way, 0 if it is under way. */
__attribute__((import_module("orfa"), import_name("Future_ready")))
int32_t orfa_host_Future_ready(orfa_handle future);

/* Sends a request to a registered service and returns at once. The request is copied. The result is a
 * handle above 0. A request that may not be sent (an unknown service, a method, path or header against
 * the rules) ends the run with a problem that says why. */
__attribute__((import_module("orfa"), import_name("http")))
orfa_handle orfa_host_http(const orfa_request *request);

/* Fills response if the call has ended and returns ORFA_OK; ORFA_NOT_READY if it has not. Where no
 * answer came, status is 0 and error says why. */
__attribute__((import_module("orfa"), import_name("Response_get")))
int32_t orfa_host_Response_get(orfa_handle future, orfa_response *response);

/* Copies a part of a response (ORFA_BODY or ORFA_HEADERS, the latter as name: value lines ending in CR
 * LF) to data, len bytes at most, and returns the part's whole length; below 0 an orfa_code. */
__attribute__((import_module("orfa"), import_name("Response_read")))
int32_t orfa_host_Response_read(orfa_handle future, int32_t part, void *data, uint32_t len);

/* Copies the JSON text of the value at a JSON Pointer (RFC 6901) in the body to data, len bytes at
 * most, and returns the text's whole length; ORFA_MISSING where there is no such value, ORFA_NOT_JSON
 * where the body is not JSON. */
__attribute__((import_module("orfa"), import_name("Response_json")))
int32_t orfa_host_Response_json(orfa_handle future, const char *pointer, uint32_t pointer_len, void *data, uint32_t len);

/* Fills value with the JSON value that the body is, and returns ORFA_OK. The first call checks the
 * whole body and makes an index of it, which counts as the run's memory until Handle_del. For an answer
 * of more than 512 KiB it comes before the functions that follow, which return ORFA_NOT_READY until
 * then. ORFA_NOT_JSON and ORFA_TOO_DEEP: node of value is the place, in bytes. A text goes to data if
 * len bytes hold it and a NUL behind it. */
__attribute__((import_module("orfa"), import_name("Json_root")))
int32_t orfa_host_Json_root(orfa_handle future, orfa_json_value *value, void *data, uint32_t len);

/* The same for a member of the object at node; of equal names the first, or the last. ORFA_MISSING
 * where there is none. */
__attribute__((import_module("orfa"), import_name("Json_member")))
int32_t orfa_host_Json_member(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last, orfa_json_value *value, void *data, uint32_t len);

/* The same for the item of an array at node and those behind it, count at most, and 1024: fills a value
 * for each, ORFA_JSON_MISSING where an item has no such member, and returns how many. It ends with the
 * array, or before the first text that data has no more room for. */
__attribute__((import_module("orfa"), import_name("Json_column")))
int32_t orfa_host_Json_column(orfa_handle future, uint32_t node, const char *name, uint32_t name_len, int32_t last, orfa_json_value *values, uint32_t count, void *data, uint32_t len);

/* Writes an orfa_json_value for each item of the array at node, or two for each member of the object,
 * its name and its value, and their texts behind them, each with a NUL. Returns how many bytes that
 * takes; where it is more than len, so many are enough, and what was written means nothing. data is
 * aligned to 8. */
__attribute__((import_module("orfa"), import_name("Json_children")))
int32_t orfa_host_Json_children(orfa_handle future, uint32_t node, void *data, uint32_t len);

/* Copies the text of the value at node as it was spelt to data, len bytes at most, and returns its
 * whole length. */
__attribute__((import_module("orfa"), import_name("Json_text")))
int32_t orfa_host_Json_text(orfa_handle future, uint32_t node, void *data, uint32_t len);

/* Waits until one (all = 0) or all of the futures have ended. Returns the index of the first that has
 * ended. No futures: ORFA_MISSING. */
__attribute__((import_module("orfa"), import_name("Future_wait")))
int32_t orfa_host_Future_wait(const orfa_handle *futures, uint32_t count, int32_t all);

/* Sets the answer's status, 200 to 599. ORFA_INVALID for any other. */
__attribute__((import_module("orfa"), import_name("status")))
int32_t orfa_host_status(int32_t code);

/* Sets a header of the answer. ORFA_INVALID for text that is no header; a name that is not on the
 * allow-list ends the run with answer-header. */
__attribute__((import_module("orfa"), import_name("header")))
int32_t orfa_host_header(const char *name, uint32_t name_len, const char *value, uint32_t value_len);

/* Milliseconds since 1970-01-01 UTC, coarse by design. */
__attribute__((import_module("orfa"), import_name("clock")))
int64_t orfa_host_clock(void);

/* Fills data with random bytes, fresh in every run. */
__attribute__((import_module("orfa"), import_name("random")))
void orfa_host_random(void *data, uint32_t len);

/* Adds a line to the console: the last 4 KB of it stand in the problem of a run that ends badly. */
__attribute__((import_module("orfa"), import_name("log")))
void orfa_host_log(const char *text, uint32_t len);

/* Ends the run as failed by the program itself: kind is an orfa_failure. line and column count from 1,
 * 0 where there is none. Does not return. */
__attribute__((import_module("orfa"), import_name("fail")))
void orfa_host_fail(int32_t kind, const char *text, uint32_t len, uint32_t line, uint32_t column);

#ifdef __cplusplus
}
#endif

#endif
