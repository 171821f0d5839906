//! What the files of the JavaScript environment share: the host functions (docs/query.md has the words,
//! `crates/query-abi` the truth), the state of the run, and the functions that cross files.
//!
//! `env.c` is the life of a run, `calls.c` the calls to services, `url.c` where they go, `lazy.c` the JSON of
//! large answers, `write.c` the JSON that is sent, `library.c` and `prelude.js` what programs find as globals,
//! `wasi.c` what wasi-libc asks of a system.
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

/* A value of a JSON body: a number, or where a text lies and where in the document the value begins. */
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

/* What the prelude hands back: the functions and prototypes that C calls. Kept for ever. */
enum { HOOK_UNPACK, HOOK_RECEIVED, HOOK_FETCH, HOOK_SERVICE_ERROR, HOOK_UNKNOWN_SERVICE, HOOK_STACK, HOOK_COUNT };
extern JSValue hooks[HOOK_COUNT];

/* False while the snapshot is made: then there is no host to ask. */
extern bool running;
/* How often memory ran out. */
extern unsigned memory_failures;

/* Text that grows. After a failed allocation `data` is NULL and everything else does nothing. */
typedef struct { char *data; size_t len, capacity; } Text;
void text_add(Text *text, const char *data, size_t len);
void text_puts(Text *text, const char *words);
/* Adds text percent-encoded, except for the unreserved characters of RFC 3986 and those in `keep`. */
void text_encode(Text *text, const char *data, size_t len, const char *keep);

/* url.c */
typedef struct { const char *name; size_t len; } Service;
/* The URL of a call, or NULL and an exception. Without `params` the path is taken as it is. `changes` says that the call
   may change something. */
char *make_url(JSContext *ctx, const Service *service, JSValueConst path, const JSValueConst *params, bool changes);
/* The text of a URLSearchParams; undefined for everything else. */
JSValue form_text(JSContext *ctx, JSValueConst value);

/* calls.c */
int calls_init(JSContext *ctx);
JSValue services_new(JSContext *ctx, const char *names, size_t len);
/* Waits for any call and settles its promise; false where none is under way. */
bool calls_wait(JSContext *ctx);
/* Waits until every call that may change something has ended: a write is not dropped half-way. */
void calls_finish(void);
/* A part of a response with a NUL behind it, or NULL. The caller frees it. */
char *response_part(int32_t handle, int part, uint32_t len);

/* lazy.c */
int lazy_init(JSContext *ctx);
/* The JSON of a response. Where `*kept`, it holds the handle and deletes it in the end. */
JSValue json_answer(JSContext *ctx, int32_t handle, size_t len, bool *kept);
bool lazy_is(JSValueConst value);
/* Whether nothing, or one scalar, was read of a lazy object. */
bool lazy_is_untouched(JSValueConst lazy);
/* Writes one that is untouched as it was spelt. */
bool lazy_write(JSValueConst lazy, Text *text);
/* Fetches all members that are not there yet; false and an exception where there is no memory. */
bool lazy_fetch(JSContext *ctx, JSValueConst lazy);

/* write.c */
int write_init(JSContext *ctx);
/* Writes a value as JSON.stringify does, with lazy objects that nothing was read of as they were spelt. False where
   the value has no JSON form, or an exception was thrown. */
bool json_write(JSContext *ctx, JSValueConst value, Text *text);
/* Whether an object is an ordinary one of no class, so that its own properties are all that it holds; false also where
   an exception was thrown. */
bool is_plain_object(JSContext *ctx, JSValueConst value);

/* library.c */
int library_init(JSContext *ctx, JSValue native);
/* A string from UTF-8, what is malformed replaced by U+FFFD, without a byte order mark. */
JSValue string_from_utf8(JSContext *ctx, const char *data, size_t len);
/* UTF-8 of a string, unpaired surrogates replaced by U+FFFD. Ends with JS_FreeCString. */
const char *string_to_utf8(JSContext *ctx, size_t *len, JSValueConst string);
/* Whether UTF-8 as the engine writes it has an unpaired surrogate: ED A0 80 to ED BF BF. */
bool has_unpaired(const char *text, size_t len);
/* The bytes that an ArrayBuffer, or a view of one as it is now, shows; false where it is neither. Any JavaScript that
   runs may end them. */
bool bytes_of(JSContext *ctx, JSValueConst value, const uint8_t **data, size_t *len);

#endif
