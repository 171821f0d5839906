//! Declarations that the files of the JavaScript environment share: the host functions (described in docs/query.md,
//! defined by `crates/query-abi`), the state of the run, and functions that cross files.
//!
//! `env.c` runs a program, `calls.c` calls services, `url.c` builds their URLs, `lazy.c` reads the JSON of large
//! answers, `write.c` writes JSON, `library.c` and `prelude.js` define the globals of programs, and `wasi.c` stubs the
//! system calls of wasi-libc.
#ifndef ORFA_JAVASCRIPT_HOST_H
#define ORFA_JAVASCRIPT_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quickjs.h"

#define HOST(NAME) __attribute__((import_module("orfa"), import_name(#NAME)))
#define EXPORT(NAME) __attribute__((export_name(#NAME), visibility("default")))

typedef struct { const char *name; uint32_t name_len; const char *value; uint32_t value_len; } HostHeader;
typedef struct {
    const char *method; uint32_t method_len;
    const char *url; uint32_t url_len;
    const HostHeader *headers; uint32_t header_count;
    const void *body; uint32_t body_len;
} HostRequest;
typedef struct { int32_t status, error; uint32_t headers_len, body_len; } HostResponse;

/* A value of a JSON body: a number, or the address of its text and the node where it begins in the document. */
typedef struct {
    uint32_t kind, len;
    union { uint64_t whole; double real; struct { const char *text; uint32_t node; }; };
} HostJson;

enum { BODY, HEADERS };                                              /* the parts of a response */
enum { REFUSED, THREW, SYNTAX, STALLED, BAD_ANSWER, MEMORY };        /* how a run fails */
enum {
    OK = 0, NOT_READY = -1, MISSING = -2, INVALID = -3, FORBIDDEN = -4, UNKNOWN_SERVICE = -5, NOT_JSON = -6,
    UNREACHABLE = -7, TIMEOUT = -8, BROKEN = -9, TOO_DEEP = -10,
};
enum {
    JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_UNSIGNED, JSON_NEGATIVE, JSON_REAL, JSON_BIG, JSON_STRING, JSON_UNPAIRED,
    JSON_ARRAY, JSON_OBJECT, JSON_MISSING,
};

HOST(done) void host_done(const void *data, uint32_t len);
HOST(Handle_del) void host_handle_del(int32_t handle);
HOST(http) int32_t host_http(const HostRequest *request);
HOST(Response_get) int32_t host_response_get(int32_t future, HostResponse *response);
HOST(Response_read) int32_t host_response_read(int32_t future, int32_t part, void *data, uint32_t len);
HOST(Json_root) int32_t host_json_root(int32_t future, HostJson *value, void *data, uint32_t len);
HOST(Json_member) int32_t host_json_member(int32_t future, uint32_t node, const char *name, uint32_t name_len, int32_t last, HostJson *value, void *data, uint32_t len);
HOST(Json_column) int32_t host_json_column(int32_t future, uint32_t node, const char *name, uint32_t name_len, int32_t last, HostJson *values, uint32_t count, void *data, uint32_t len);
HOST(Json_children) int32_t host_json_children(int32_t future, uint32_t node, void *data, uint32_t len);
HOST(Json_text) int32_t host_json_text(int32_t future, uint32_t node, void *data, uint32_t len);
HOST(Future_wait) int32_t host_future_wait(const int32_t *futures, uint32_t count, int32_t all);
HOST(status) int32_t host_status(int32_t code);
HOST(header) int32_t host_header(const char *name, uint32_t name_len, const char *value, uint32_t value_len);
HOST(clock) int64_t host_clock(void);
HOST(random) void host_random(void *data, uint32_t len);
HOST(log) void host_log(const char *text, uint32_t len);
HOST(fail) _Noreturn void host_fail(int32_t kind, const char *text, uint32_t len, uint32_t line, uint32_t column);

/* The functions and prototypes that the prelude returns for C to use. Never freed. */
enum { HOOK_UNPACK, HOOK_RECEIVED, HOOK_FETCH, HOOK_SERVICE_ERROR, HOOK_UNKNOWN_SERVICE, HOOK_STACK, HOOK_CHECK_EMPTY, HOOK_COUNT };
extern JSValue hooks[HOOK_COUNT];

/* False while the snapshot is taken: the host must not be called then. */
extern bool running;
/* The number of failed allocations. */
extern unsigned memory_failures;

/* Growable text. After a failed allocation `data` is NULL and all further additions are ignored. */
typedef struct { char *data; size_t len, capacity; } Text;
void text_add(Text *text, const char *data, size_t len);
void text_puts(Text *text, const char *words);
/* Adds text percent-encoded, except for the unreserved characters of RFC 3986 and those in `keep`. */
void text_encode(Text *text, const char *data, size_t len, const char *keep);

/* url.c */
typedef struct { const char *name; size_t len; } Service;
/* Returns the URL of a call, or NULL and an exception. Without `params` the path is taken as it is. `changes`: whether
   the call may change something. */
char *make_url(JSContext *ctx, const Service *service, JSValueConst path, const JSValueConst *params, bool changes);
/* Returns the text of a URLSearchParams; undefined for any other value. */
JSValue form_text(JSContext *ctx, JSValueConst value);

/* calls.c */
int calls_init(JSContext *ctx);
JSValue services_new(JSContext *ctx, const char *names, size_t len);
/* Waits for any call and settles its promise. Returns false if no call is in flight. */
bool calls_wait(JSContext *ctx);
/* Drops the calls in flight that change nothing. Their promises are never settled. */
void calls_drop_reads(JSContext *ctx);
/* Returns the error of a failed call that may have changed something, if the program has no handler for it, or else
   undefined; and forgets all failed calls. */
JSValue calls_failure(JSContext *ctx);
/* Waits until every call that may change something has ended, so that no write is cancelled half-way. Its outcome does
   not matter: the run has failed. */
void calls_finish(JSContext *ctx);
/* Returns a part of a response followed by a NUL, or NULL. The caller frees it. */
char *response_part(int32_t handle, int part, uint32_t len);

/* lazy.c */
int lazy_init(JSContext *ctx);
/* Returns the JSON of a response. If it sets `*kept`, the value owns the handle and deletes it in the end. */
JSValue json_answer(JSContext *ctx, int32_t handle, size_t len, bool *kept);
bool lazy_is(JSValueConst value);
/* Whether no member of a lazy object was read, or only one scalar. */
bool lazy_is_untouched(JSValueConst lazy);
/* Writes an untouched lazy object with its original text. */
bool lazy_write(JSValueConst lazy, Text *text);
/* Fetches all members that are missing; false and an exception if there is no memory. */
bool lazy_fetch(JSContext *ctx, JSValueConst lazy);

/* write.c */
int write_init(JSContext *ctx);
/* Writes a value as JSON.stringify does, to an empty text. If `spelt`, untouched lazy objects keep their original text.
   False if the value has no JSON form, or an exception was thrown, also for values whose data JSON.stringify would leave
   out. */
bool json_write(JSContext *ctx, JSValueConst value, bool spelt, Text *text);
/* Whether an object has no class and the usual prototype or none, so that its own properties are all of its data. Also
   false if an exception was thrown. */
bool is_plain_object(JSContext *ctx, JSValueConst value);

/* library.c */
int library_init(JSContext *ctx, JSValue native);
/* Returns a string from UTF-8, without a byte order mark; malformed parts are replaced by U+FFFD. */
JSValue string_from_utf8(JSContext *ctx, const char *data, size_t len);
/* Returns a string as UTF-8; unpaired surrogates are replaced by U+FFFD. Free it with JS_FreeCString. */
const char *string_to_utf8(JSContext *ctx, size_t *len, JSValueConst string);
/* Whether UTF-8 as written by the engine contains an unpaired surrogate: ED A0 80 to ED BF BF. */
bool has_unpaired(const char *text, size_t len);
/* Returns the current bytes of an ArrayBuffer or of a view; false for any other value. `*data` is NULL if the buffer is
   detached. The pointer is valid until any JavaScript runs. */
bool bytes_of(JSContext *ctx, JSValueConst value, const uint8_t **data, size_t *len);
/* The error message if the bytes of a detached buffer are to be sent. */
extern const char DETACHED[];

#endif
