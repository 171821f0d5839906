//! The calls to services: `services.NAME.get(path, params)` and its siblings, `services.NAME.fetch(path, init)`.
//!
//! A call becomes a request of the host at once; its promise waits in `pending` until `calls_wait` reports that the
//! future has ended. The error of a possible failure is created when the call begins, because only then is the
//! program's own line on the stack. `call_settle` turns it into a ServiceError or drops it.
//!
//! The errors of calls that may have changed something are listed in `failed_calls`, since a program that handles none of
//! them must not answer as if all had been well.
#include "host.h"

typedef enum { GET, HEAD, POST, PUT, PATCH, DELETE, FETCH } Verb;

typedef struct {
    JSValue resolve, reject, error;
    const Service *service;
    char *method, *path;                                             /* path: as sent, with the query */
    Verb verb;
} Call;

static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
static JSClassID service_class;

/* Futures in flight, oldest first, and the calls that wait for them. Parallel arrays, for Future_wait. */
static int32_t *futures;
static Call *pending;
static uint32_t count, capacity;

/* The error of a failed call that may have changed something, and the number of rejected promises that have it as their
   reason and no handler: the call's own, or those of async functions and chains that passed it on. */
typedef struct { JSValue error; int32_t unhandled; } Failure;

static Failure *failed_calls;
static uint32_t failed_count;

/* Whether a call may change something. */
static bool changes(const Call *call) {
    return !call->method || (strcmp(call->method, "GET") && strcmp(call->method, "HEAD"));
}

/* ---- beginning a call ---- */

static bool grow(void) {
    if (count < capacity)
        return true;
    uint32_t more = capacity ? capacity * 2 : 16;
    int32_t *handles = realloc(futures, more * sizeof *futures);
    futures = handles ? handles : futures;
    Call *calls = handles ? realloc(pending, more * sizeof *pending) : NULL;
    pending = calls ? calls : pending;
    capacity = calls ? more : capacity;
    return calls != NULL;
}

static void call_free(JSContext *ctx, Call *call) {
    JS_FreeValue(ctx, call->resolve);
    JS_FreeValue(ctx, call->reject);
    JS_FreeValue(ctx, call->error);
    free(call->method);
    free(call->path);
}

static void call_settle(JSContext *ctx, Call *call, int32_t handle, int32_t error);

/* Sends the request and returns the call's promise. Takes over `url`. */
static JSValue begin(JSContext *ctx, const Service *service, Verb verb, char *url, HostRequest *request) {
    JSValue functions[2] = {JS_UNDEFINED, JS_UNDEFINED};
    JSValue promise = grow() ? JS_NewPromiseCapability(ctx, functions) : JS_ThrowOutOfMemory(ctx);
    if (JS_IsException(promise))
        return free(url), promise;
    Call call = {functions[0], functions[1], JS_NewError(ctx), service, NULL, url, verb};
    call.method = strndup(request->method, request->method_len);
    request->url = url, request->url_len = strlen(url);
    int32_t handle = host_http(request);
    if (handle > 0) {
        futures[count] = handle;
        pending[count++] = call;
    } else {
        call_settle(ctx, &call, 0, handle);
    }
    return promise;
}

/* The body of a request: bytes as they are, a URLSearchParams as a form, any other value as JSON. */
typedef struct { const char *type; const void *data; size_t len; const char *text; JSValue form; Text json; } Body;

static bool body_json(JSContext *ctx, Body *body, JSValueConst value) {
    bool written = json_write(ctx, value, false, &body->json);
    if (!written && !JS_HasException(ctx))
        JS_ThrowTypeError(ctx, "a function or symbol can't be sent as a body");
    if (written && !body->json.data)
        JS_ThrowOutOfMemory(ctx);
    body->type = "application/json", body->data = body->json.data, body->len = body->json.len;
    return written && body->data;
}

static bool body_open(JSContext *ctx, Body *body, JSValueConst value) {
    *body = (Body){.form = JS_UNDEFINED};
    if (JS_IsUndefined(value))
        return true;
    const uint8_t *bytes;
    if (bytes_of(ctx, value, &bytes, &body->len)) {
        if (!bytes)
            JS_ThrowTypeError(ctx, "%s", DETACHED);
        body->type = "application/octet-stream", body->data = bytes;
        return bytes;
    }
    body->form = form_text(ctx, value);
    if (JS_IsUndefined(body->form))
        return body_json(ctx, body, value);
    if (JS_IsString(body->form))
        body->data = body->text = string_to_utf8(ctx, &body->len, body->form);
    body->type = "application/x-www-form-urlencoded";
    return body->data;
}

static void body_close(JSContext *ctx, Body *body) {
    JS_FreeCString(ctx, body->text);
    JS_FreeValue(ctx, body->form);
    free(body->json.data);
}

static const Service *service_of(JSContext *ctx, JSValueConst this_val) {
    const Service *service = JS_GetOpaque(this_val, service_class);
    if (!service)
        JS_ThrowTypeError(ctx, "a call needs its service: write services.NAME.get(path), not get(path)");
    return service;
}

static JSValue service_call(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv, int verb) {
    const Service *service = service_of(ctx, this_val);
    bool sends = verb == POST || verb == PUT || verb == PATCH;
    char *url = service ? make_url(ctx, service, argv[0], &argv[sends ? 2 : 1], verb != GET && verb != HEAD) : NULL;
    if (!url)
        return JS_EXCEPTION;
    Body body;
    if (!body_open(ctx, &body, sends ? argv[1] : JS_UNDEFINED))
        return body_close(ctx, &body), free(url), JS_EXCEPTION;
    HostHeader type = {"content-type", 12, body.type, body.type ? strlen(body.type) : 0};
    HostRequest request = {METHODS[verb], strlen(METHODS[verb]), NULL, 0, &type, body.type ? 1 : 0, body.data, body.len};
    JSValue promise = begin(ctx, service, verb, url, &request);
    body_close(ctx, &body);
    return promise;
}

/* Returns the headers of a fetch: names and values from the third item of `parts` on. */
static HostHeader *headers_open(JSContext *ctx, JSValueConst parts, int64_t len) {
    HostHeader *headers = js_calloc(ctx, len / 2, sizeof *headers);
    for (int64_t i = 2; headers && i < len; i++) {
        JSValue item = JS_GetPropertyInt64(ctx, parts, i);
        HostHeader *header = &headers[i / 2 - 1];
        size_t size = 0;
        *(i % 2 ? &header->value : &header->name) = string_to_utf8(ctx, &size, item);
        *(i % 2 ? &header->value_len : &header->name_len) = size;
        JS_FreeValue(ctx, item);
    }
    return headers;
}

static void headers_close(JSContext *ctx, HostHeader *headers, int64_t len) {
    for (int64_t i = 0; headers && i < len / 2 - 1; i++) {
        JS_FreeCString(ctx, headers[i].name);
        JS_FreeCString(ctx, headers[i].value);
    }
    js_free(ctx, headers);
}

/* Sends the parts that the prelude made of a fetch: [body, method, name, value, name, value, ...]. Takes over `url`. */
static JSValue fetch_parts(JSContext *ctx, const Service *service, char *url, JSValueConst parts) {
    int64_t len = 0;
    JS_GetLength(ctx, parts, &len);
    JSValue body = JS_GetPropertyUint32(ctx, parts, 0), method = JS_GetPropertyUint32(ctx, parts, 1);
    HostHeader *headers = headers_open(ctx, parts, len);
    size_t size;
    const char *name = headers ? JS_ToCStringLen(ctx, &size, method) : NULL;
    JSValue promise = JS_EXCEPTION;
    if (name) {
        HostRequest request = {name, size, NULL, 0, headers, len / 2 - 1, NULL, 0};
        const uint8_t *bytes;
        if (bytes_of(ctx, body, &bytes, &size))
            request.body = bytes, request.body_len = size;
        promise = begin(ctx, service, FETCH, url, &request);
    } else {
        free(url);
    }
    JS_FreeCString(ctx, name);
    headers_close(ctx, headers, len);
    JS_FreeValue(ctx, method);
    JS_FreeValue(ctx, body);
    return promise;
}

static JSValue service_fetch(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    const Service *service = service_of(ctx, this_val);
    JSValue parts = service ? JS_Call(ctx, hooks[HOOK_FETCH], JS_UNDEFINED, 1, &argv[1]) : JS_EXCEPTION;
    char *url = JS_IsException(parts) ? NULL : make_url(ctx, service, argv[0], NULL, false);
    JSValue promise = url ? fetch_parts(ctx, service, url, parts) : JS_EXCEPTION;
    JS_FreeValue(ctx, parts);
    return promise;
}

/* ---- ending a call ---- */

char *response_part(int32_t handle, int part, uint32_t len) {
    char *data = malloc((size_t)len + 1);
    if (!data)
        return memory_failures++, NULL;
    if (len)
        host_response_read(handle, part, data, len);
    data[len] = 0;
    return data;
}

typedef enum { TYPE_BYTES, TYPE_TEXT, TYPE_JSON } ContentType;

static ContentType type_of(const char *value) {
    size_t len = strcspn(value, "; \t\r\n");
    if (strncasecmp(value, "text/", 5) == 0)
        return TYPE_TEXT;
    bool json = (len == 16 && strncasecmp(value, "application/json", 16) == 0)
                || (len > 5 && strncasecmp(value + len - 5, "+json", 5) == 0);
    return json ? TYPE_JSON : TYPE_BYTES;
}

static ContentType content_type(int32_t handle, uint32_t len) {
    char *headers = response_part(handle, HEADERS, len);
    ContentType type = TYPE_BYTES;
    for (const char *line = headers; line; line = strstr(line, "\r\n")) {
        line += *line == '\r' ? 2 : 0;
        if (strncasecmp(line, "content-type:", 13) == 0) {
            type = type_of(line + 13 + strspn(line + 13, " \t"));
            break;
        }
    }
    free(headers);
    return type;
}

/* Returns the body as a value: JSON and text by content type, null if it is empty, else a Uint8Array. */
static JSValue response_value(JSContext *ctx, int32_t handle, const HostResponse *response, bool *kept) {
    if (response->body_len == 0)
        return JS_NULL;
    ContentType type = content_type(handle, response->headers_len);
    if (type == TYPE_JSON)
        return json_answer(ctx, handle, response->body_len, kept);
    char *data = response_part(handle, BODY, response->body_len);
    if (!data)
        return JS_ThrowOutOfMemory(ctx);
    JSValue value = type == TYPE_TEXT ? string_from_utf8(ctx, data, response->body_len)
                                      : JS_NewUint8ArrayCopy(ctx, (uint8_t *)data, response->body_len);
    free(data);
    return value;
}

static const char *reason(int32_t code) {
    switch (code) {
    case NOT_JSON: return "not-json";
    case TOO_DEEP: return "too-deep";
    case UNREACHABLE: return "unreachable";
    case TIMEOUT: return "timeout";
    default: return "broken";
    }
}

/* Turns the error that was created when the call began into a ServiceError. */
static JSValue service_error(JSContext *ctx, Call *call, int32_t status, int32_t code, JSValue body) {
    const Service *service = call->service;
    JSValue arguments[] = {
        JS_DupValue(ctx, call->error),
        JS_NewStringLen(ctx, service->name, service->len),
        JS_NewString(ctx, call->method ? call->method : "?"),
        JS_NewString(ctx, call->path + strlen("http://") + service->len),
        JS_NewInt32(ctx, status),
        body,
        code ? JS_NewString(ctx, reason(code)) : JS_UNDEFINED,
    };
    JSValue error = JS_Call(ctx, hooks[HOOK_SERVICE_ERROR], JS_UNDEFINED, 7, (JSValueConst *)arguments);
    for (int i = 0; i < 7; i++)
        JS_FreeValue(ctx, arguments[i]);
    return error;
}

/* Returns the value or error for the call's promise. `*failed`: whether the promise is rejected; `*kept`: whether the
   value owns the handle from now on. */
static JSValue outcome(JSContext *ctx, Call *call, int32_t handle, int32_t error, bool *failed, bool *kept) {
    HostResponse response = {0, error, 0, 0};
    if (handle)
        host_response_get(handle, &response);
    *failed = true;
    if (response.status == 0)
        return service_error(ctx, call, 0, response.error, JS_NULL);
    if (call->verb == FETCH || call->verb == HEAD) {
        bool good = call->verb == FETCH || (response.status >= 200 && response.status < 300);
        if (!good)
            return service_error(ctx, call, response.status, 0, JS_NULL);
        JSValue arguments[] = {JS_NewInt32(ctx, handle), JS_NewInt32(ctx, response.status), JS_NewBool(ctx, call->verb == HEAD)};
        *failed = false;
        *kept = call->verb == FETCH;
        return JS_Call(ctx, hooks[HOOK_RECEIVED], JS_UNDEFINED, 3, (JSValueConst *)arguments);
    }
    unsigned failures = memory_failures;
    JSValue value = response_value(ctx, handle, &response, kept);
    bool good = response.status >= 200 && response.status < 300;
    if (JS_IsException(value) && memory_failures == failures) {
        JS_FreeValue(ctx, JS_GetException(ctx));
        HostJson root;
        bool deep = host_json_root(handle, &root, NULL, 0) == TOO_DEEP;
        return service_error(ctx, call, response.status, !good ? 0 : deep ? TOO_DEEP : NOT_JSON, JS_NULL);
    }
    if (JS_IsException(value))
        return value;
    *failed = !good;
    return good ? value : service_error(ctx, call, response.status, 0, value);
}

/* Lists the error of a call that may have changed something, before its promise is rejected. */
static void failure_add(JSContext *ctx, JSValueConst error) {
    static const char NO_MEMORY[] = "out of memory while a call failed";
    Failure *more = realloc(failed_calls, (failed_count + 1) * sizeof *failed_calls);
    if (!more)
        host_fail(MEMORY, NO_MEMORY, sizeof NO_MEMORY - 1, 0, 0);
    failed_calls = more;
    failed_calls[failed_count++] = (Failure){JS_DupValue(ctx, error), 0};
}

/* The engine calls it when a promise without a handler is rejected, and when such a promise gets its first handler. */
static void rejection_changed(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool is_handled, void *opaque) {
    for (uint32_t i = 0; i < failed_count; i++) {
        if (JS_IsStrictEqual(ctx, failed_calls[i].error, reason))
            failed_calls[i].unhandled += is_handled ? -1 : 1;
    }
}

JSValue calls_failure(JSContext *ctx) {
    JSValue failure = JS_UNDEFINED;
    for (uint32_t i = 0; i < failed_count; i++) {
        if (failed_calls[i].unhandled > 0 && JS_IsUndefined(failure))
            failure = JS_DupValue(ctx, failed_calls[i].error);
        JS_FreeValue(ctx, failed_calls[i].error);
    }
    failed_count = 0;
    return failure;
}

/* Settles the promise of a call that has ended, or that could not be sent because of `error`. */
static void call_settle(JSContext *ctx, Call *call, int32_t handle, int32_t error) {
    bool failed, kept = false;
    JSValue value = outcome(ctx, call, handle, error, &failed, &kept);
    if (JS_IsException(value))
        value = JS_GetException(ctx), failed = true;
    if (failed && changes(call))
        failure_add(ctx, value);
    JS_FreeValue(ctx, JS_Call(ctx, failed ? call->reject : call->resolve, JS_UNDEFINED, 1, (JSValueConst *)&value));
    JS_FreeValue(ctx, value);
    if (handle && !kept)
        host_handle_del(handle);
    call_free(ctx, call);
}

bool calls_wait(JSContext *ctx) {
    if (count == 0)
        return false;
    int32_t at = host_future_wait(futures, count, 0);
    if (at < 0 || (uint32_t)at >= count)
        return false;
    Call call = pending[at];
    int32_t handle = futures[at];
    count--;
    memmove(&futures[at], &futures[at + 1], (count - at) * sizeof *futures);
    memmove(&pending[at], &pending[at + 1], (count - at) * sizeof *pending);
    call_settle(ctx, &call, handle, 0);
    return true;
}

void calls_drop_reads(JSContext *ctx) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (changes(&pending[i])) {
            futures[kept] = futures[i];
            pending[kept++] = pending[i];
        } else {
            call_free(ctx, &pending[i]);
        }
    }
    count = kept;
}

void calls_finish(JSContext *ctx) {
    calls_drop_reads(ctx);
    if (count)
        host_future_wait(futures, count, 1);
    count = 0;
}

/* ---- the `services` object ---- */

static const JSCFunctionListEntry SERVICE[] = {
    JS_CFUNC_MAGIC_DEF("get", 2, service_call, GET),
    JS_CFUNC_MAGIC_DEF("head", 2, service_call, HEAD),
    JS_CFUNC_MAGIC_DEF("post", 3, service_call, POST),
    JS_CFUNC_MAGIC_DEF("put", 3, service_call, PUT),
    JS_CFUNC_MAGIC_DEF("patch", 3, service_call, PATCH),
    JS_CFUNC_MAGIC_DEF("delete", 2, service_call, DELETE),
    JS_CFUNC_DEF("fetch", 2, service_fetch),
};

int calls_init(JSContext *ctx) {
    static const JSClassDef definition = {.class_name = "Service"};
    JSRuntime *runtime = JS_GetRuntime(ctx);
    JSValue prototype = JS_NewObject(ctx);
    JS_NewClassID(runtime, &service_class);
    int failed = JS_NewClass(runtime, service_class, &definition)
                 | JS_SetPropertyFunctionList(ctx, prototype, SERVICE, sizeof SERVICE / sizeof *SERVICE);
    JS_SetClassProto(ctx, service_class, prototype);
    JS_SetHostPromiseRejectionTracker(runtime, rejection_changed, NULL);
    return failed;
}

/* `names` (comma-separated) must outlive the run. Unknown names reach the prelude's proxy. */
JSValue services_new(JSContext *ctx, const char *names, size_t len) {
    JSValue services = JS_NewObjectProto(ctx, hooks[HOOK_UNKNOWN_SERVICE]);
    for (const char *end = names + len; names < end;) {
        const char *comma = memchr(names, ',', end - names);
        Service *service = js_malloc(ctx, sizeof *service);
        JSValue object = service ? JS_NewObjectClass(ctx, service_class) : JS_EXCEPTION;
        if (JS_IsException(object))
            return JS_EXCEPTION;
        *service = (Service){names, (comma ? comma : end) - names};
        JS_SetOpaque(object, service);
        JSAtom name = JS_NewAtomLen(ctx, service->name, service->len);
        JS_DefinePropertyValue(ctx, services, name, object, JS_PROP_C_W_E);
        JS_FreeAtom(ctx, name);
        names = service->name + service->len + 1;
    }
    return services;
}
