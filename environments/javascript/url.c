//! The URL of a call: the path with its placeholders filled in, then the query, all percent-encoded. A value from the
//! program can never change the path's segments or add a parameter.
//!
//! Texts have a length: U+0000 is a character like others, sent as `%00`. An unpaired surrogate is sent as U+FFFD, as
//! by `encodeURIComponent(text.toWellFormed())`.
#include "host.h"

/* ---- text ---- */

enum { FAILED = -1 };

static bool text_room(Text *text, size_t len) {
    if (text->capacity == (size_t)FAILED)
        return false;
    if (text->len + len < text->capacity)
        return true;
    size_t capacity = (text->len + len) * 2 + 64;
    char *data = realloc(text->data, capacity);
    if (!data)
        free(text->data), memory_failures++;
    text->data = data;
    text->capacity = data ? capacity : (size_t)FAILED;
    return data != NULL;
}

void text_add(Text *text, const char *data, size_t len) {
    if (!text_room(text, len))
        return;
    memcpy(text->data + text->len, data, len);
    text->len += len;
    text->data[text->len] = 0;
}

void text_puts(Text *text, const char *words) { text_add(text, words, strlen(words)); }

static bool unreserved(char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '.' || c == '_' || c == '~';
}

void text_encode(Text *text, const char *data, size_t len, const char *keep) {
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (unreserved(c) || (c && strchr(keep, c))) {
            text_add(text, &c, 1);
        } else {
            char code[] = {'%', "0123456789ABCDEF"[(uint8_t)c >> 4], "0123456789ABCDEF"[c & 15]};
            text_add(text, code, sizeof code);
        }
    }
}

/* ---- the URL of a call ---- */

/* Characters that are kept in a path or query; others are encoded. '%' is among them: it begins an encoded one. */
static const char IN_URL[] = "%/?:@!$&'()*+,;=[]";

/* Adds a parameter's value, percent-encoded. `name` is for the error. */
static bool add_scalar(JSContext *ctx, Text *url, JSValueConst value, const char *name) {
    JSValue text = JS_UNDEFINED;
    if (JS_IsDate(value)) {
        JSAtom method = JS_NewAtom(ctx, "toISOString");
        text = JS_Invoke(ctx, value, method, 0, NULL);
        JS_FreeAtom(ctx, method);
    } else if (JS_IsString(value) || JS_IsNumber(value) || JS_IsBool(value) || JS_IsBigInt(value)) {
        text = JS_DupValue(ctx, value);
    } else {
        JS_ThrowTypeError(ctx, "the parameter '%s' has to be text, a number, a boolean, a Date or an array of them", name);
        return false;
    }
    size_t len;
    const char *data = JS_IsException(text) ? NULL : string_to_utf8(ctx, &len, text);
    JS_FreeValue(ctx, text);
    if (!data)
        return false;
    text_encode(url, data, len, "");
    JS_FreeCString(ctx, data);
    return true;
}

/* Whether the text added from `start` on can be in a path: an empty one, `.` or `..` would lead to another path. */
static bool check_part(JSContext *ctx, const Text *url, size_t start, const char *name) {
    const char *part = url->data ? url->data + start : "-";
    if (*part && strcmp(part, ".") && strcmp(part, ".."))
        return true;
    JS_ThrowTypeError(ctx, "{%s} in the path can't be filled with '%s'", name, part);
    return false;
}

typedef enum { IN_PATH, IN_QUERY } Place;

static bool add_item(JSContext *ctx, Text *url, JSValueConst value, const char *name, Place place) {
    size_t start = url->len;
    return add_scalar(ctx, url, value, name) && (place == IN_QUERY || check_part(ctx, url, start, name));
}

/* Adds a value. The items of an array are joined by commas. */
static bool add_value(JSContext *ctx, Text *url, JSValueConst value, const char *name, Place place) {
    if (!JS_IsArray(value))
        return add_item(ctx, url, value, name, place);
    size_t start = url->len;
    int64_t len;
    if (JS_GetLength(ctx, value, &len) < 0)
        return false;
    for (int64_t i = 0; i < len; i++) {
        JSValue item = JS_GetPropertyInt64(ctx, value, i);
        if (i)
            text_puts(url, ",");
        bool added = !JS_IsException(item) && add_item(ctx, url, item, name, place);
        JS_FreeValue(ctx, item);
        if (!added)
            return false;
    }
    return place == IN_QUERY || check_part(ctx, url, start, name);
}

/* Parameters: the properties of a plain object, or a URLSearchParams, whose text is the query. */
typedef struct {
    JSValueConst object;
    JSPropertyEnum *names;
    uint32_t count;
    bool *used, changes;
    JSValue form;
} Params;

JSValue form_text(JSContext *ctx, JSValueConst value) {
    if (!JS_IsObject(value))
        return JS_UNDEFINED;
    return JS_Call(ctx, hooks[HOOK_UNPACK], JS_UNDEFINED, 2, (JSValueConst[]){value, JS_TRUE});
}

/* Rejects other objects: their data is not in own properties (a Map, a Date, getters of a class) and would be lost. */
static bool form_open(JSContext *ctx, Params *params, JSValueConst object) {
    params->form = form_text(ctx, object);
    if (JS_IsUndefined(params->form))
        JS_ThrowTypeError(ctx, "params has to be a plain object such as { limit: 8 }, or a URLSearchParams");
    return JS_IsString(params->form);
}

static bool params_open(JSContext *ctx, Params *params, JSValueConst object, bool changes) {
    *params = (Params){.object = object, .changes = changes, .form = JS_UNDEFINED};
    if (JS_IsUndefined(object) || JS_IsNull(object))
        return true;
    if (!is_plain_object(ctx, object))
        return !JS_HasException(ctx) && form_open(ctx, params, object);
    if (JS_GetOwnPropertyNames(ctx, &params->names, &params->count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0)
        return false;
    params->used = js_calloc(ctx, params->count + 1, 1);
    return params->used != NULL;
}

static void params_close(JSContext *ctx, Params *params) {
    if (params->names)
        JS_FreePropertyEnum(ctx, params->names, params->count);
    js_free(ctx, params->used);
    JS_FreeValue(ctx, params->form);
}

/* Fills in `{name}` from the parameters. */
static bool add_placeholder(JSContext *ctx, Text *url, Params *params, const char *name, size_t len) {
    JSAtom atom = JS_NewAtomLen(ctx, name, len);
    const char *spelt = JS_AtomToCString(ctx, atom);
    bool filled = false;
    for (uint32_t i = 0; spelt && i < params->count && !filled; i++) {
        if (params->names[i].atom != atom)
            continue;
        JSValue value = JS_GetProperty(ctx, params->object, atom);
        filled = params->used[i] = !JS_IsException(value) && add_value(ctx, url, value, spelt, IN_PATH);
        JS_FreeValue(ctx, value);
        if (!filled)
            break;
    }
    if (!filled && spelt && !JS_HasException(ctx))
        JS_ThrowTypeError(ctx, "the path needs {%s}, and params has no '%s'", spelt, spelt);
    JS_FreeCString(ctx, spelt);
    JS_FreeAtom(ctx, atom);
    return filled;
}

/* Returns the length of `{name}` at the start of `path`, which ends with a NUL; 0 if there is none. */
static size_t placeholder(const char *path) {
    size_t len = 1;
    while (path[0] == '{' && (unreserved(path[len]) || path[len] == '$'))
        len++;
    return path[0] == '{' && path[len] == '}' && len > 1 ? len + 1 : 0;
}

static bool add_path(JSContext *ctx, Text *url, Params *params, const char *path, const char *end) {
    while (path < end) {
        size_t len = params ? placeholder(path) : 0;
        if (len && !add_placeholder(ctx, url, params, path + 1, len - 2))
            return false;
        if (!len)
            text_encode(url, path, len = 1, IN_URL);
        path += len;
    }
    return true;
}

/* Returns the reason why a change may not have the list with this text: a service may take an empty list, or an empty
   item, to mean everything. NULL if there is none. */
static const char *list_fault(const char *text) {
    size_t len = strlen(text);
    if (len == 0)
        return "an empty list";
    return text[0] == ',' || text[len - 1] == ',' || strstr(text, ",,") ? "a list with an empty text in it" : NULL;
}

/* Adds `name=value`. */
static bool add_parameter(JSContext *ctx, Text *url, JSAtom atom, JSValueConst value, bool changes) {
    JSValue string = JS_AtomToString(ctx, atom);
    size_t len;
    const char *name = JS_IsException(string) ? NULL : string_to_utf8(ctx, &len, string);
    if (name)
        text_encode(url, name, len, "");
    text_puts(url, "=");
    size_t start = url->len;
    bool added = name && add_value(ctx, url, value, name, IN_QUERY);
    const char *fault = added && changes && JS_IsArray(value) && url->data ? list_fault(url->data + start) : NULL;
    if (fault)
        JS_ThrowTypeError(ctx, "the parameter '%s' is %s, which a call that changes something can't have", name, fault);
    JS_FreeCString(ctx, name);
    JS_FreeValue(ctx, string);
    return added && !fault;
}

/* Adds the text of a URLSearchParams to the query. */
static bool add_form(JSContext *ctx, Text *url, JSValueConst form, bool first) {
    size_t len;
    const char *text = string_to_utf8(ctx, &len, form);
    if (!text)
        return false;
    if (len)
        text_puts(url, first ? "?" : "&");
    text_add(url, text, len);
    JS_FreeCString(ctx, text);
    return true;
}

/* Rejects an absent parameter for a change, which a service may take to mean everything. */
static void refuse_absent(JSContext *ctx, JSAtom atom, JSValueConst value) {
    const char *name = JS_AtomToCString(ctx, atom), *word = JS_IsNull(value) ? "null" : "undefined";
    if (name)
        JS_ThrowTypeError(ctx, "the parameter '%s' is %s, which a call that changes something can't have: don't name it to leave it out", name, word);
    JS_FreeCString(ctx, name);
}

/* Adds the parameters that the path did not use as the query; null and undefined ones are left out of reads. */
static bool add_query(JSContext *ctx, Text *url, Params *params) {
    bool first = !(url->data && strchr(url->data, '?')), added = true;
    if (JS_IsString(params->form))
        return add_form(ctx, url, params->form, first);
    for (uint32_t i = 0; i < params->count && added; i++) {
        if (params->used[i])
            continue;
        JSValue value = JS_GetProperty(ctx, params->object, params->names[i].atom);
        bool absent = JS_IsUndefined(value) || JS_IsNull(value);
        added = !JS_IsException(value) && !(absent && params->changes);
        if (absent && params->changes)
            refuse_absent(ctx, params->names[i].atom, value);
        if (added && !absent) {
            text_puts(url, first ? "?" : "&");
            added = add_parameter(ctx, url, params->names[i].atom, value, params->changes);
            first = false;
        }
        JS_FreeValue(ctx, value);
    }
    return added;
}

char *make_url(JSContext *ctx, const Service *service, JSValueConst path, const JSValueConst *params, bool changes) {
    size_t len;
    const char *text = JS_IsString(path) ? string_to_utf8(ctx, &len, path) : NULL;
    if (!text || *text != '/') {
        if (!JS_HasException(ctx))
            JS_ThrowTypeError(ctx, "the path has to be text that begins with '/'");
        return JS_FreeCString(ctx, text), NULL;
    }
    Text url = {0};
    Params open = {.form = JS_UNDEFINED};
    text_puts(&url, "http://");
    text_add(&url, service->name, service->len);
    bool made = !params || params_open(ctx, &open, *params, changes);
    made = made && add_path(ctx, &url, params ? &open : NULL, text, text + len) && add_query(ctx, &url, &open);
    params_close(ctx, &open);
    JS_FreeCString(ctx, text);
    if (made && !url.data)
        JS_ThrowOutOfMemory(ctx);
    if (made)
        return url.data;
    return free(url.data), NULL;
}
