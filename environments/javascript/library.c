//! Parts of the library that are written in C: text encodings (except base64, which QuickJS has), random numbers and
//! the clock. `prelude.js` wraps them in their standard interfaces.
//!
//! Math.random, Date and performance ask the host, because a seed that the engine chose while the snapshot was taken
//! would be the same in every run.
#include "host.h"

static uint64_t random_state;

/* The state is 0 in the snapshot: the first call of a run fetches a seed. */
static JSValue math_random(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    while (random_state == 0 && running)
        host_random(&random_state, sizeof random_state);
    uint64_t x = random_state;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;                       /* xorshift64* */
    random_state = x;
    return JS_NewFloat64(ctx, (double)((x * 0x2545F4914F6CDD1DULL) >> 11) * 0x1p-53);
}

static JSValue native_clock(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    return JS_NewInt64(ctx, running ? host_clock() : 0);
}

/* The limit of the host for one call, and of the Web Crypto standard. */
static const size_t RANDOM_BYTES = 65536;

/* fill(view): writes random bytes to a typed array of integers; undefined for any other value. */
static JSValue native_fill(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    const uint8_t *data;
    size_t len;
    int type = JS_GetTypedArrayType(argv[0]);
    if (type < 0 || type >= JS_TYPED_ARRAY_FLOAT16 || !bytes_of(ctx, argv[0], &data, &len))
        return JS_UNDEFINED;
    if (len > RANDOM_BYTES)
        return JS_ThrowRangeError(ctx, "getRandomValues fills at most %d bytes at once", (int)RANDOM_BYTES);
    if (running)
        host_random((void *)data, len);
    return JS_NewUint32(ctx, len);
}

static JSValue native_uuid(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    uint8_t raw[16] = {0};
    char text[36];
    if (running)
        host_random(raw, sizeof raw);
    raw[6] = (raw[6] & 0x0f) | 0x40, raw[8] = (raw[8] & 0x3f) | 0x80;      /* version 4, RFC 9562 */
    char *end = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *end++ = '-';
        *end++ = "0123456789abcdef"[raw[i] >> 4];
        *end++ = "0123456789abcdef"[raw[i] & 15];
    }
    return JS_NewStringLen(ctx, text, sizeof text);
}

/* log(text) */
static JSValue native_log(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len;
    const char *text = string_to_utf8(ctx, &len, argv[0]);
    if (!text)
        return JS_EXCEPTION;
    if (running)
        host_log(text, len);
    JS_FreeCString(ctx, text);
    return JS_UNDEFINED;
}

/* encode(string): a Uint8Array of UTF-8 */
static JSValue native_encode(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len;
    const char *text = string_to_utf8(ctx, &len, argv[0]);
    if (!text)
        return JS_EXCEPTION;
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, len);
    JS_FreeCString(ctx, text);
    return bytes;
}

/* Returns the length of the well-formed UTF-8 character at `data`. If there is none, returns 0, and `*bad` is the
   number of bytes that one U+FFFD replaces (the maximal subpart of the Unicode standard). */
static size_t utf8_length(const uint8_t *data, size_t len, size_t *bad) {
    uint8_t lead = data[0], low = 0x80, high = 0xbf;
    size_t more = lead < 0x80 ? 0 : lead >= 0xc2 && lead < 0xe0 ? 1 : (lead & 0xf0) == 0xe0 ? 2 : lead >= 0xf0 && lead < 0xf5 ? 3 : 9;
    *bad = 1;
    if (more == 9)
        return 0;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (size_t i = 1; i <= more; i++, low = 0x80, high = 0xbf) {
        if (i >= len || data[i] < low || data[i] > high)
            return *bad = i, 0;
    }
    return more + 1;
}

/* Returns the length of the longest well-formed prefix. */
static size_t utf8_valid(const uint8_t *data, size_t len) {
    size_t at = 0, bad;
    while (at < len) {
        size_t step = data[at] < 0x80 ? 1 : utf8_length(data + at, len - at, &bad);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

static JSValue repaired(JSContext *ctx, const char *data, size_t len, size_t valid) {
    Text text = {0};
    text_add(&text, data, valid);
    while (valid < len) {
        size_t bad;
        utf8_length((const uint8_t *)data + valid, len - valid, &bad);
        text_puts(&text, "\xef\xbf\xbd");
        data += valid + bad, len -= valid + bad;
        valid = utf8_valid((const uint8_t *)data, len);
        text_add(&text, data, valid);
    }
    JSValue string = text.data ? JS_NewStringLen(ctx, text.data, text.len) : JS_ThrowOutOfMemory(ctx);
    free(text.data);
    return string;
}

static void skip_mark(const char **data, size_t *len) {
    if (*len >= 3 && memcmp(*data, "\xef\xbb\xbf", 3) == 0)
        *data += 3, *len -= 3;
}

JSValue string_from_utf8(JSContext *ctx, const char *data, size_t len) {
    skip_mark(&data, &len);
    size_t valid = utf8_valid((const uint8_t *)data, len);
    return valid == len ? JS_NewStringLen(ctx, data, len) : repaired(ctx, data, len, valid);
}

/* decode(bytes, fatal, keep_mark): a string; undefined if `fatal` and malformed. */
static JSValue native_decode(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    const uint8_t *bytes;
    size_t len;
    if (!bytes_of(ctx, argv[0], &bytes, &len))
        return JS_ThrowTypeError(ctx, "only an ArrayBuffer or a view of one can be decoded");
    const char *data = (const char *)bytes;
    if (!JS_ToBool(ctx, argv[2]))
        skip_mark(&data, &len);
    size_t valid = utf8_valid((const uint8_t *)data, len);
    if (valid == len)
        return JS_NewStringLen(ctx, data, len);
    return JS_ToBool(ctx, argv[1]) ? JS_UNDEFINED : repaired(ctx, data, len, valid);
}

bool has_unpaired(const char *text, size_t len) {
    for (const char *at = text; (at = memchr(at, 0xed, text + len - at)); at++) {
        if (at + 1 < text + len && (uint8_t)at[1] >= 0xa0)
            return true;
    }
    return false;
}

const char *string_to_utf8(JSContext *ctx, size_t *len, JSValueConst string) {
    const char *text = JS_ToCStringLen(ctx, len, string);
    /* The engine writes an unpaired surrogate as three bytes, ED A0 80 to ED BF BF; U+FFFD is three bytes, too. Text
       with such bytes is a converted copy, never the string itself, and may be modified. */
    for (const char *at = text; at && (at = memchr(at, 0xed, text + *len - at)); at++) {
        if (at + 2 < text + *len && (uint8_t)at[1] >= 0xa0)
            memcpy((char *)at, "\xef\xbf\xbd", 3);
    }
    return text;
}

/* The getters of views, taken from their prototypes before any program runs. The engine's own functions return the
   length that a view had when it was created, which is wrong once a resizable buffer has changed. */
enum { BUFFER, OFFSET, LENGTH, GETTERS };
typedef JSValue Getters[GETTERS];
static Getters typed_array, data_view;

static int getters_init(JSContext *ctx, JSValueConst prototype, Getters getters) {
    static const char *const NAMES[] = {"buffer", "byteOffset", "byteLength"};
    for (int i = 0; i < GETTERS; i++) {
        JSPropertyDescriptor found;
        JSAtom name = JS_NewAtom(ctx, NAMES[i]);
        if (JS_GetOwnProperty(ctx, &found, prototype, name) <= 0)
            return -1;
        JS_FreeAtom(ctx, name);
        getters[i] = found.getter;
    }
    return 0;
}

const char DETACHED[] = "this ArrayBuffer is detached, and its bytes are gone: use the one that transfer() returned";

/* Calls a numeric getter of a view; 0 if the view is outside of its buffer, or the buffer is detached. */
static size_t measured(JSContext *ctx, JSValueConst view, JSValueConst getter) {
    int64_t number = 0;
    JSValue value = JS_Call(ctx, getter, view, 0, NULL);
    if (JS_IsException(value))
        JS_FreeValue(ctx, JS_GetException(ctx));
    else
        JS_ToInt64(ctx, &number, value);
    JS_FreeValue(ctx, value);
    return number;
}

bool bytes_of(JSContext *ctx, JSValueConst value, const uint8_t **data, size_t *len) {
    JSValue buffer;
    size_t offset = 0, length = SIZE_MAX, all = 0;
    if (JS_IsArrayBuffer(value)) {
        buffer = JS_DupValue(ctx, value);
    } else if (JS_GetTypedArrayType(value) >= 0 || JS_IsDataView(value)) {
        JSValueConst *getters = JS_IsDataView(value) ? data_view : typed_array;
        buffer = JS_Call(ctx, getters[BUFFER], value, 0, NULL);
        offset = measured(ctx, value, getters[OFFSET]);
        length = measured(ctx, value, getters[LENGTH]);
    } else {
        return false;
    }
    const uint8_t *bytes = JS_IsException(buffer) ? NULL : JS_GetArrayBuffer(ctx, &all, buffer);
    bool detached = !bytes && JS_HasException(ctx);
    if (detached)
        JS_FreeValue(ctx, JS_GetException(ctx));
    JS_FreeValue(ctx, buffer);                                       /* the value keeps it alive */
    offset = offset < all ? offset : all;
    *len = length < all - offset ? length : all - offset;
    *data = bytes ? bytes + offset : detached ? NULL : (const uint8_t *)"";
    return true;
}

/* bytes(value): a copy of a buffer's or view's bytes as a Uint8Array; undefined for any other value. Throws if the buffer
   is detached. */
static JSValue native_bytes(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    const uint8_t *data;
    size_t len;
    if (!bytes_of(ctx, argv[0], &data, &len))
        return JS_UNDEFINED;
    return data ? JS_NewUint8ArrayCopy(ctx, data, len) : JS_ThrowTypeError(ctx, "%s", DETACHED);
}

/* json(value): the text of a value as JSON, by the rules for answers and bodies; undefined if it has no JSON form. */
static JSValue native_json(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    Text text = {0};
    bool has_form = json_write(ctx, argv[0], false, &text);
    JSValue string = JS_HasException(ctx) ? JS_EXCEPTION
                     : !has_form          ? JS_UNDEFINED
                     : text.data          ? JS_NewStringLen(ctx, text.data, text.len)
                                          : JS_ThrowOutOfMemory(ctx);
    free(text.data);
    return string;
}

/* ---- header fields ---- */

/* `tchar` of RFC 9110, 5.6.2. */
static bool is_token(char c) {
    bool alphanumeric = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    return alphanumeric || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* token(string): in lower case; undefined if it isn't a token, and so neither a field name nor a method. */
static JSValue native_token(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len, at = 0;
    const char *text = string_to_utf8(ctx, &len, argv[0]);
    char *lower = text ? js_malloc(ctx, len + 1) : NULL;
    if (!lower)
        return JS_FreeCString(ctx, text), JS_EXCEPTION;
    for (; at < len && is_token(text[at]); at++)
        lower[at] = text[at] >= 'A' && text[at] <= 'Z' ? text[at] | 32 : text[at];
    JSValue token = at == len && len ? JS_NewStringLen(ctx, lower, len) : JS_UNDEFINED;
    js_free(ctx, lower);
    JS_FreeCString(ctx, text);
    return token;
}

/* field(string): without surrounding white space; undefined if a control character makes it an invalid field value. */
static JSValue native_field(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len, begin = 0;
    const char *text = string_to_utf8(ctx, &len, argv[0]);
    if (!text)
        return JS_EXCEPTION;
    const char *const SPACE = " \t\r\n";
    for (; begin < len && text[begin] && strchr(SPACE, text[begin]); begin++) {}
    for (; len > begin && text[len - 1] && strchr(SPACE, text[len - 1]); len--) {}
    bool control = false;
    for (size_t i = begin; i < len; i++)
        control |= ((uint8_t)text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f;
    JSValue value = control ? JS_UNDEFINED : JS_NewStringLen(ctx, text + begin, len - begin);
    JS_FreeCString(ctx, text);
    return value;
}

/* form_encode(string): as application/x-www-form-urlencoded */
static JSValue native_form_encode(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len;
    const char *raw = string_to_utf8(ctx, &len, argv[0]);
    if (!raw)
        return JS_EXCEPTION;
    Text text = {0};
    text_add(&text, "", 0);
    for (size_t i = 0; i < len; i++)
        raw[i] == ' ' ? text_puts(&text, "+") : raw[i] == '~' ? text_puts(&text, "%7E") : text_encode(&text, raw + i, 1, "*");
    JS_FreeCString(ctx, raw);
    JSValue string = text.data ? JS_NewStringLen(ctx, text.data, text.len) : JS_ThrowOutOfMemory(ctx);
    free(text.data);
    return string;
}

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static JSValue native_form_decode(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len, end = 0;
    const char *raw = string_to_utf8(ctx, &len, argv[0]);
    char *plain = raw ? js_malloc(ctx, len + 1) : NULL;
    if (!plain)
        return JS_FreeCString(ctx, raw), JS_EXCEPTION;
    for (size_t i = 0; i < len; i++) {
        int high = raw[i] == '%' && i + 2 < len ? hex(raw[i + 1]) : -1;
        int low = high >= 0 ? hex(raw[i + 2]) : -1;
        plain[end++] = low >= 0 ? (char)(high << 4 | low) : raw[i] == '+' ? ' ' : raw[i];
        i += low >= 0 ? 2 : 0;
    }
    JS_FreeCString(ctx, raw);
    size_t valid = utf8_valid((const uint8_t *)plain, end);
    JSValue string = repaired(ctx, plain, end, valid);
    js_free(ctx, plain);
    return string;
}

/* header_text(handle): `name: value` lines */
static JSValue native_headers(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    int32_t handle;
    HostResponse response;
    JS_ToInt32(ctx, &handle, argv[0]);
    host_response_get(handle, &response);
    char *data = response_part(handle, HEADERS, response.headers_len);
    if (!data)
        return JS_ThrowOutOfMemory(ctx);
    JSValue text = string_from_utf8(ctx, data, response.headers_len);
    free(data);
    return text;
}

/* read(handle, kind): the body as JSON (0), string (1) or bytes (2); deletes the handle or passes it to the value. */
static JSValue native_read(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    int32_t handle, kind;
    HostResponse response;
    bool kept = false;
    JS_ToInt32(ctx, &handle, argv[0]);
    JS_ToInt32(ctx, &kind, argv[1]);
    host_response_get(handle, &response);
    char *data = kind == 0 ? NULL : response_part(handle, BODY, response.body_len);
    JSValue value = kind == 0   ? json_answer(ctx, handle, response.body_len, &kept)
                    : !data     ? JS_ThrowOutOfMemory(ctx)
                    : kind == 1 ? string_from_utf8(ctx, data, response.body_len)
                                : JS_NewUint8ArrayCopy(ctx, (const uint8_t *)data, response.body_len);
    free(data);
    if (!kept)
        host_handle_del(handle);
    return value;
}

static const JSCFunctionListEntry NATIVE[] = {
    JS_CFUNC_DEF("clock", 0, native_clock),
    JS_CFUNC_DEF("fill", 1, native_fill),
    JS_CFUNC_DEF("uuid", 0, native_uuid),
    JS_CFUNC_DEF("log", 1, native_log),
    JS_CFUNC_DEF("bytes", 1, native_bytes),
    JS_CFUNC_DEF("json", 1, native_json),
    JS_CFUNC_DEF("token", 1, native_token),
    JS_CFUNC_DEF("field", 1, native_field),
    JS_CFUNC_DEF("encode", 1, native_encode),
    JS_CFUNC_DEF("decode", 3, native_decode),
    JS_CFUNC_DEF("formEncode", 1, native_form_encode),
    JS_CFUNC_DEF("formDecode", 1, native_form_decode),
    JS_CFUNC_DEF("headers", 1, native_headers),
    JS_CFUNC_DEF("read", 2, native_read),
};

static JSValue prototype_of(JSContext *ctx, JSValueConst global, const char *class) {
    JSValue constructor = JS_GetPropertyStr(ctx, global, class);
    JSValue prototype = JS_GetPropertyStr(ctx, constructor, "prototype");
    JS_FreeValue(ctx, constructor);
    return prototype;
}

int library_init(JSContext *ctx, JSValue native) {
    JSValue global = JS_GetGlobalObject(ctx);
    JSValue math = JS_GetPropertyStr(ctx, global, "Math");
    JSValue array = prototype_of(ctx, global, "Uint8Array"), view = prototype_of(ctx, global, "DataView");
    JSValue any_array = JS_GetPrototype(ctx, array);
    int set = getters_init(ctx, any_array, typed_array) | getters_init(ctx, view, data_view)
                 | JS_SetPropertyFunctionList(ctx, native, NATIVE, sizeof NATIVE / sizeof *NATIVE)
                 | JS_SetPropertyStr(ctx, math, "random", JS_NewCFunction(ctx, math_random, "random", 0));
    JS_FreeValue(ctx, any_array);
    JS_FreeValue(ctx, array);
    JS_FreeValue(ctx, view);
    JS_FreeValue(ctx, math);
    JS_FreeValue(ctx, global);
    return set;
}
