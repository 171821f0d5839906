//! Answers and the bodies of calls as JSON: the output of JSON.stringify, written directly into the bytes to be sent.
//!
//! Arrays, plain objects and their contents are written here; in an answer, untouched lazy objects keep their original
//! text. Rare values (a toJSON, a boxed or big number, a cycle) are left to JSON.stringify. Values that JSON.stringify
//! writes as `{}`, without their data, are rejected: a Map or a forgotten Promise wherever it is found, also by
//! JSON.stringify; others only at the top level.
#include <math.h>

#include "host.h"

/* Values that are nested deeper than this are left to JSON.stringify: they may be cyclic. */
enum { DEPTH = 64 };

static JSClassID plain_class;
static JSAtom to_json_name;
static JSValue class_checker;                                        /* a replacer of JSON.stringify */

static bool write_value(JSContext *ctx, Text *text, JSAtom name, JSValueConst value, bool spelt, int depth);

/* Adds the bytes of `string`, without the first `skip` and the last `less` bytes. */
static bool add_string(JSContext *ctx, Text *text, JSValueConst string, size_t skip, size_t less) {
    size_t len;
    const char *utf8 = string_to_utf8(ctx, &len, string);
    if (utf8)
        text_add(text, utf8 + skip, len - skip - less);
    JS_FreeCString(ctx, utf8);
    return utf8;
}

static void add_escaped(Text *text, const char *data, size_t len) {
    static const char SHORT[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\'};
    for (const char *end = data + len; data < end; data++) {
        uint8_t byte = *data;
        if (byte < sizeof SHORT && SHORT[byte])
            text_add(text, (char[]){'\\', SHORT[byte]}, 2);
        else if (byte < ' ')
            text_add(text, (char[]){'\\', 'u', '0', '0', '0' + (byte >> 4), "0123456789abcdef"[byte & 15]}, 6);
        else
            text_add(text, data, 1);
    }
}

static bool write_string(JSContext *ctx, Text *text, JSValueConst string) {
    size_t len, plain = 0;
    const char *utf8 = JS_ToCStringLen(ctx, &len, string);
    if (!utf8)
        return false;
    if (has_unpaired(utf8, len)) {                                   /* written as a \u escape */
        JSValue json = JS_JSONStringify(ctx, string, JS_UNDEFINED, JS_UNDEFINED);
        bool added = JS_IsString(json) && add_string(ctx, text, json, 0, 0);
        JS_FreeValue(ctx, json);
        JS_FreeCString(ctx, utf8);
        return added;
    }
    while (plain < len && (uint8_t)utf8[plain] >= ' ' && utf8[plain] != '"' && utf8[plain] != '\\')
        plain++;
    text_puts(text, "\"");
    text_add(text, utf8, plain);
    add_escaped(text, utf8 + plain, len - plain);
    text_puts(text, "\"");
    JS_FreeCString(ctx, utf8);
    return true;
}

static bool write_name(JSContext *ctx, Text *text, JSAtom name) {
    JSValue string = JS_AtomToString(ctx, name);
    bool written = !JS_IsException(string) && write_string(ctx, text, string);
    JS_FreeValue(ctx, string);
    return written;
}

static void write_integer(Text *text, int32_t number) {
    char digits[11], *end = digits + sizeof digits, *at = end;
    uint32_t rest = number < 0 ? -(uint32_t)number : (uint32_t)number;
    do *--at = '0' + rest % 10;
    while (rest /= 10);
    if (number < 0)
        *--at = '-';
    text_add(text, at, end - at);
}

/* Throws for a Promise, a Map and a Set: JSON.stringify would leave out their data. */
static bool check_class(JSContext *ctx, JSValueConst object) {
    const char *advice = JS_IsPromise(object) ? "a Promise has no JSON form: await it"
                         : JS_IsMap(object)   ? "a Map has no JSON form: use Object.fromEntries(map) or [...map]"
                         : JS_IsSet(object)   ? "a Set has no JSON form: use [...set]"
                                              : NULL;
    if (advice)
        JS_ThrowTypeError(ctx, "%s", advice);
    return !advice;
}

/* Returns the value of a member as it is, for JSON.stringify, or throws as check_class does. */
static JSValue check_member(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    return check_class(ctx, argv[1]) ? JS_DupValue(ctx, argv[1]) : JS_EXCEPTION;
}

/* Writes a value by JSON.stringify, as a member of this name, since a toJSON gets the name as its argument. */
static bool write_by_engine(JSContext *ctx, Text *text, JSAtom name, JSValueConst value) {
    Text before = {0};
    text_puts(&before, "{");
    bool written = write_name(ctx, &before, name);
    JSValue holder = written ? JS_NewObjectProto(ctx, JS_NULL) : JS_EXCEPTION;
    written = !JS_IsException(holder) && JS_DefinePropertyValue(ctx, holder, name, JS_DupValue(ctx, value), JS_PROP_C_W_E) >= 0;
    JSValue json = written ? JS_JSONStringify(ctx, holder, class_checker, JS_UNDEFINED) : JS_EXCEPTION;
    int64_t len = 0;
    written = JS_IsString(json) && JS_GetLength(ctx, json, &len) >= 0 && len > 2 && add_string(ctx, text, json, before.len + 1, 1);
    JS_FreeValue(ctx, json);
    JS_FreeValue(ctx, holder);
    free(before.data);
    return written;
}

static bool write_array(JSContext *ctx, Text *text, JSValueConst array, bool spelt, int depth) {
    int64_t len = 0;
    if (JS_GetLength(ctx, array, &len) < 0)
        return false;
    text_puts(text, "[");
    for (int64_t i = 0; i < len; i++) {
        if (i)
            text_puts(text, ",");
        JSValue item = JS_GetPropertyInt64(ctx, array, i);
        JSAtom name = JS_NewAtomUInt32(ctx, (uint32_t)i);
        if (!JS_IsException(item) && !write_value(ctx, text, name, item, spelt, depth) && !JS_HasException(ctx))
            text_puts(text, "null");
        JS_FreeAtom(ctx, name);
        JS_FreeValue(ctx, item);
        if (JS_HasException(ctx))
            return false;
    }
    text_puts(text, "]");
    return true;
}

/* Writes `"name":value` if the value has a JSON form. */
static void write_member(JSContext *ctx, Text *text, JSAtom name, JSValueConst value, bool comma, bool spelt, int depth) {
    size_t before = text->len;
    text_puts(text, comma ? "," : "");
    bool written = write_name(ctx, text, name);
    text_puts(text, ":");
    if (!written || !write_value(ctx, text, name, value, spelt, depth))
        text->len = before;
}

static bool write_object(JSContext *ctx, Text *text, JSValueConst object, bool spelt, int depth) {
    JSPropertyEnum *names;
    uint32_t count;
    if (JS_GetOwnPropertyNames(ctx, &names, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0)
        return false;
    text_puts(text, "{");
    size_t begin = text->len;
    for (uint32_t i = 0; i < count && !JS_HasException(ctx); i++) {
        JSValue value = JS_GetProperty(ctx, object, names[i].atom);
        if (!JS_IsException(value))
            write_member(ctx, text, names[i].atom, value, text->len > begin, spelt, depth);
        JS_FreeValue(ctx, value);
    }
    JS_FreePropertyEnum(ctx, names, count);
    text_puts(text, "}");
    return !JS_HasException(ctx);
}

/* Whether an object has a toJSON, its own or inherited; an exception may have been thrown. */
static bool has_to_json(JSContext *ctx, JSValueConst object) {
    JSValue to_json = JS_GetProperty(ctx, object, to_json_name);
    bool callable = JS_IsFunction(ctx, to_json);
    JS_FreeValue(ctx, to_json);
    return callable;
}

/* Whether a lazy object is written with its original text: it is untouched, and its prototype has no toJSON. */
static bool is_as_spelt(JSContext *ctx, JSValueConst object) {
    if (!lazy_is_untouched(object))
        return false;
    JSValue prototype = JS_GetPrototype(ctx, object);
    bool converted = JS_IsObject(prototype) && has_to_json(ctx, prototype);
    JS_FreeValue(ctx, prototype);
    return !converted;
}

static bool write_container(JSContext *ctx, Text *text, JSAtom name, JSValueConst value, bool spelt, int depth) {
    bool lazy = lazy_is(value), array = JS_IsArray(value);
    if (lazy && spelt && is_as_spelt(ctx, value))
        return !JS_HasException(ctx) && lazy_write(value, text);
    if (lazy && !lazy_fetch(ctx, value))
        return false;
    bool plain = lazy || array || JS_GetClassID(value) == plain_class;
    bool converted = has_to_json(ctx, value);
    if (JS_HasException(ctx))
        return false;
    if (!plain && !converted && !check_class(ctx, value))
        return false;
    if (!plain || converted || depth == 0)
        return write_by_engine(ctx, text, name, value);
    return array ? write_array(ctx, text, value, spelt, depth - 1) : write_object(ctx, text, value, spelt, depth - 1);
}

/* Writes a value. False if the value has no JSON form, or an exception was thrown. */
static bool write_value(JSContext *ctx, Text *text, JSAtom name, JSValueConst value, bool spelt, int depth) {
    switch (JS_VALUE_GET_NORM_TAG(value)) {
    case JS_TAG_OBJECT: return write_container(ctx, text, name, value, spelt, depth);
    case JS_TAG_STRING: case JS_TAG_STRING_ROPE: return write_string(ctx, text, value);
    case JS_TAG_INT: return write_integer(text, JS_VALUE_GET_INT(value)), true;
    case JS_TAG_BOOL: return text_puts(text, JS_VALUE_GET_BOOL(value) ? "true" : "false"), true;
    case JS_TAG_NULL: return text_puts(text, "null"), true;
    case JS_TAG_FLOAT64:
        if (isfinite(JS_VALUE_GET_FLOAT64(value)))
            return add_string(ctx, text, value, 0, 0);
        return text_puts(text, "null"), true;
    case JS_TAG_UNDEFINED: case JS_TAG_SYMBOL: return false;
    default: return write_by_engine(ctx, text, name, value);
    }
}

bool json_write(JSContext *ctx, JSValueConst value, bool spelt, Text *text) {
    JSAtom name = JS_NewAtomLen(ctx, "", 0);
    bool written = write_value(ctx, text, name, value, spelt, DEPTH);
    JS_FreeAtom(ctx, name);
    bool empty = written && text->data && text->len == 2 && text->data[0] == '{';
    if (!empty || is_plain_object(ctx, value))
        return written;
    return !JS_IsException(JS_Call(ctx, hooks[HOOK_CHECK_EMPTY], JS_UNDEFINED, 1, &value));
}

bool is_plain_object(JSContext *ctx, JSValueConst value) {
    if (!lazy_is(value) && JS_GetClassID(value) != plain_class)
        return false;
    JSValue prototype = JS_GetPrototype(ctx, value), usual = JS_GetClassProto(ctx, plain_class);
    bool plain = JS_IsNull(prototype) || JS_IsStrictEqual(ctx, prototype, usual);
    JS_FreeValue(ctx, prototype);
    JS_FreeValue(ctx, usual);
    return plain;
}

int write_init(JSContext *ctx) {
    JSValue object = JS_NewObject(ctx);
    plain_class = JS_GetClassID(object);
    JS_FreeValue(ctx, object);
    to_json_name = JS_NewAtom(ctx, "toJSON");
    class_checker = JS_NewCFunction(ctx, check_member, "", 2);
    return to_json_name == JS_ATOM_NULL || JS_IsException(class_checker) ? -1 : 0;
}
