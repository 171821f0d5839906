//! JSON that stays with the host: objects of large answers, of which a program reads a part.
//!
//! A lazy object is an exotic one without properties of its own. What is read of it is fetched from the host
//! and kept in `known`, an ordinary object; what is more than reading (counting, changing) first fetches all
//! the rest, and from then on `known` is the object. Arrays are real ones, made when they are first met:
//! their items are cheap, since objects among them are lazy.
#include "host.h"

/* The answers from this length on stay with the host: smaller ones are parsed sooner than asked about. */
static const size_t LAZY_BYTES = 4096;

enum { CHUNK = 128, DEPTH = 64 };

typedef struct Document Document;

typedef struct {
    Document *document;
    uint32_t node;
    bool read, whole;                                                /* something was read; `known` has all */
    JSValue known;                                                   /* null until something is */
} Lazy;

/* Room for some lazy objects of a document, so that each costs no allocation of its own. */
typedef struct Chunk { struct Chunk *next; Lazy objects[CHUNK]; } Chunk;

/* The document of one response. It ends with the last lazy object of it. */
struct Document {
    int32_t handle;
    uint32_t objects, made;                                          /* alive, and ever */
    Chunk *chunks;
};

static JSClassID lazy_class, plain_class;
/* Documents that are there. */
static uint32_t documents;

static Lazy *lazy_of(JSValueConst object) { return JS_GetOpaque(object, lazy_class); }

/* ---- what the host has ---- */

static JSValue array_new(JSContext *ctx, Document *document, const HostJson *array);

static JSValue lazy_new(JSContext *ctx, Document *document, uint32_t node) {
    if (document->made % CHUNK == 0) {
        Chunk *chunk = js_malloc(ctx, sizeof *chunk);
        if (!chunk)
            return JS_EXCEPTION;
        chunk->next = document->chunks;
        document->chunks = chunk;
    }
    JSValue object = JS_NewObjectClass(ctx, lazy_class);
    if (JS_IsException(object))
        return object;
    Lazy *lazy = &document->chunks->objects[document->made++ % CHUNK];
    *lazy = (Lazy){document, node, .known = JS_NULL};
    document->objects++;
    JS_SetOpaque(object, lazy);
    return object;
}

static void document_free(JSRuntime *runtime, Document *document) {
    for (Chunk *chunk = document->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        js_free_rt(runtime, chunk);
    }
    js_free_rt(runtime, document);
    documents--;
}

/* What only its spelling says in full: a number beyond the doubles, or a string with an unpaired surrogate. */
static JSValue spelt_new(JSContext *ctx, Document *document, uint32_t node) {
    int32_t len = host_json_text(document->handle, node, NULL, 0);
    char *text = js_malloc(ctx, (size_t)len + 1);
    if (!text)
        return JS_EXCEPTION;
    host_json_text(document->handle, node, text, len);
    text[len] = 0;
    JSValue value = JS_ParseJSON(ctx, text, len, "response");
    js_free(ctx, text);
    return value;
}

/* A value of the host's as JavaScript's. */
static JSValue value_new(JSContext *ctx, Document *document, const HostJson *value) {
    switch (value->kind) {
    case JSON_FALSE: return JS_FALSE;
    case JSON_TRUE: return JS_TRUE;
    case JSON_UNSIGNED:
        return value->whole <= INT32_MAX ? JS_NewInt32(ctx, (int32_t)value->whole) : JS_NewFloat64(ctx, (double)value->whole);
    case JSON_NEGATIVE: return JS_NewInt64(ctx, (int64_t)value->whole);
    case JSON_REAL: return JS_NewFloat64(ctx, value->real);
    case JSON_STRING: return JS_NewStringLen(ctx, value->text, value->len);
    case JSON_BIG: case JSON_UNPAIRED: return spelt_new(ctx, document, value->node);
    case JSON_ARRAY: return array_new(ctx, document, value);
    case JSON_OBJECT: return lazy_new(ctx, document, value->node);
    default: return JS_NULL;
    }
}

/* The children of a container, to be freed; NULL and an exception where there is no memory. */
static HostJson *children_of(JSContext *ctx, Document *document, uint32_t node, uint32_t *room) {
    HostJson *children = NULL;
    for (uint32_t needed = *room;; needed = *room) {
        children = js_malloc(ctx, needed + 1);
        if (!children)
            return NULL;
        *room = host_json_children(document->handle, node, children, needed);
        if (*room <= needed)
            return children;
        js_free(ctx, children);
    }
}

static JSValue array_new(JSContext *ctx, Document *document, const HostJson *array) {
    uint32_t count = array->len, room = count * sizeof(HostJson);
    HostJson *items = children_of(ctx, document, array->node, &room);
    JSValue *values = items ? js_malloc(ctx, count * sizeof *values + 1) : NULL;
    uint32_t made = 0;
    while (values && made < count) {
        values[made] = value_new(ctx, document, &items[made]);
        if (JS_IsException(values[made]))
            break;
        made++;
    }
    JSValue result = JS_EXCEPTION;
    if (values && made == count)
        result = JS_NewArrayFrom(ctx, count, values);
    else
        while (made)
            JS_FreeValue(ctx, values[--made]);
    js_free(ctx, values);
    js_free(ctx, items);
    return result;
}

/* ---- what a program does with an object ---- */

static JSAtom name_of(JSContext *ctx, Document *document, const HostJson *name) {
    if (name->kind == JSON_STRING)
        return JS_NewAtomLen(ctx, name->text, name->len);
    JSValue text = spelt_new(ctx, document, name->node);
    JSAtom atom = JS_IsException(text) ? JS_ATOM_NULL : JS_ValueToAtom(ctx, text);
    JS_FreeValue(ctx, text);
    return atom;
}

/* Whether `known` has the property, and its value. */
static int take_known(JSContext *ctx, const Lazy *lazy, JSAtom name, JSValue *value) {
    JSPropertyDescriptor found;
    int known = JS_IsNull(lazy->known) ? 0 : JS_GetOwnProperty(ctx, &found, lazy->known, name);
    if (known > 0)
        *value = found.value;
    return known;
}

/* Fetches all that is not known yet, so that the properties have the order of the text. */
static bool fetch_all(JSContext *ctx, Lazy *lazy) {
    if (lazy->whole)
        return true;
    Document *document = lazy->document;
    uint32_t room = 1024;
    HostJson *members = children_of(ctx, document, lazy->node, &room);
    JSValue whole = members ? JS_NewObjectProto(ctx, JS_NULL) : JS_EXCEPTION;
    bool good = !JS_IsException(whole);
    /* The texts follow the last record: the first name says where, or there is none. */
    const HostJson *end = good && room ? (const HostJson *)members->text : members;
    for (const HostJson *member = members; good && member < end; member += 2) {
        JSAtom name = name_of(ctx, document, member);
        JSValue value;
        int known = name == JS_ATOM_NULL ? -1 : take_known(ctx, lazy, name, &value);
        if (known == 0)
            value = value_new(ctx, document, member + 1);
        good = known >= 0 && !JS_IsException(value) && JS_DefinePropertyValue(ctx, whole, name, value, JS_PROP_C_W_E) >= 0;
        JS_FreeAtom(ctx, name);
    }
    js_free(ctx, members);
    JS_FreeValue(ctx, good ? lazy->known : whole);
    if (good)
        lazy->known = whole, lazy->whole = true;
    return good;
}

/* An unpaired surrogate is written as ED A0 80 to ED BF BF. */
static bool has_unpaired(const char *text, size_t len) {
    for (const char *at = text; (at = memchr(at, 0xed, text + len - at)); at++) {
        if (at + 1 < text + len && (uint8_t)at[1] >= 0xa0)
            return true;
    }
    return false;
}

/* A name as the host takes it. The last one stays, and its atom with it: often many objects are asked the same. */
static struct { JSAtom atom; const char *text; size_t len; bool symbol; } last;

static bool name_as_text(JSContext *ctx, JSAtom atom) {
    if (last.atom == atom && last.text)
        return true;
    JSValue key = JS_AtomToValue(ctx, atom);
    size_t len = 0;
    bool symbol = !JS_IsString(key);
    const char *text = symbol ? NULL : JS_ToCStringLen(ctx, &len, key);
    JS_FreeValue(ctx, key);
    if (text) {
        JS_FreeCString(ctx, last.text);
        JS_FreeAtom(ctx, last.atom);
        last.atom = JS_DupAtom(ctx, atom), last.text = text, last.len = len;
    }
    last.symbol = symbol;
    return text;
}

/* Asks the host for one property: 1 and `*value`, 0 where there is none, or -1. */
static int fetch(JSContext *ctx, Lazy *lazy, JSAtom atom, JSValue *value) {
    if (!name_as_text(ctx, atom))
        return last.symbol ? 0 : -1;                                 /* a symbol is none of JSON's */
    if (has_unpaired(last.text, last.len))                           /* the host's names are UTF-8 */
        return fetch_all(ctx, lazy) ? take_known(ctx, lazy, atom, value) : -1;
    HostJson found;
    char text[512], *room = text;
    int32_t handle = lazy->document->handle;
    int32_t code = host_json_member(handle, lazy->node, last.text, last.len, 1, &found, room, sizeof text);
    bool fits = code != OK || found.kind != JSON_STRING || found.text;
    if (!fits && (room = js_malloc(ctx, found.len + 1)))
        code = host_json_member(handle, lazy->node, last.text, last.len, 1, &found, room, found.len + 1);
    if (room && code == OK)
        *value = value_new(ctx, lazy->document, &found);
    if (room != text)
        js_free(ctx, room);
    return !room || (code == OK && JS_IsException(*value)) ? -1 : code == OK;
}

/* Keeps what was fetched, since it has to be the same the next time; a scalar only if the object is read again. */
static bool remember(JSContext *ctx, Lazy *lazy, JSAtom name, JSValueConst value) {
    bool again = lazy->read;
    lazy->read = true;
    if (!again && !JS_IsObject(value))
        return true;
    if (JS_IsNull(lazy->known))
        lazy->known = JS_NewObjectProto(ctx, JS_NULL);
    return JS_DefinePropertyValue(ctx, lazy->known, name, JS_DupValue(ctx, value), JS_PROP_C_W_E) >= 0;
}

static int get_own_property(JSContext *ctx, JSPropertyDescriptor *property, JSValueConst object, JSAtom name) {
    Lazy *lazy = lazy_of(object);
    int known = JS_IsNull(lazy->known) ? 0 : JS_GetOwnProperty(ctx, property, lazy->known, name);
    if (known || lazy->whole)
        return known;
    JSValue value;
    int found = fetch(ctx, lazy, name, &value);
    if (found <= 0)
        return found;
    if (!remember(ctx, lazy, name, value))
        return JS_FreeValue(ctx, value), -1;
    if (property)
        *property = (JSPropertyDescriptor){JS_PROP_C_W_E, value, JS_UNDEFINED, JS_UNDEFINED};
    else
        JS_FreeValue(ctx, value);
    return 1;
}

static int get_own_property_names(JSContext *ctx, JSPropertyEnum **names, uint32_t *count, JSValueConst object) {
    Lazy *lazy = lazy_of(object);
    if (!fetch_all(ctx, lazy))
        return -1;
    return JS_GetOwnPropertyNames(ctx, names, count, lazy->known, JS_GPN_STRING_MASK | JS_GPN_SYMBOL_MASK);
}

static int delete_property(JSContext *ctx, JSValueConst object, JSAtom name) {
    Lazy *lazy = lazy_of(object);
    return fetch_all(ctx, lazy) ? JS_DeleteProperty(ctx, lazy->known, name, 0) : -1;
}

static int define_own_property(JSContext *ctx, JSValueConst object, JSAtom name, JSValueConst value, JSValueConst getter, JSValueConst setter, int flags) {
    Lazy *lazy = lazy_of(object);
    if (!fetch_all(ctx, lazy))
        return -1;
    if (!JS_IsExtensible(ctx, object))                               /* the engine knows it of the lazy one alone */
        JS_PreventExtensions(ctx, lazy->known);
    return JS_DefineProperty(ctx, lazy->known, name, value, getter, setter, flags);
}

static void finalize(JSRuntime *runtime, JSValueConst object) {
    Lazy *lazy = lazy_of(object);
    if (!lazy)
        return;
    JS_FreeValueRT(runtime, lazy->known);
    if (--lazy->document->objects == 0) {
        host_handle_del(lazy->document->handle);
        document_free(runtime, lazy->document);
    }
}

static void mark(JSRuntime *runtime, JSValueConst object, JS_MarkFunc *mark_func) {
    Lazy *lazy = lazy_of(object);
    if (lazy)
        JS_MarkValue(runtime, lazy->known, mark_func);
}

/* ---- answers ---- */

static JSValue parse_body(JSContext *ctx, int32_t handle, size_t len) {
    char *data = response_part(handle, BODY, len);
    if (!data)
        return JS_ThrowOutOfMemory(ctx);
    size_t byte_order_mark = len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    JSValue value = JS_ParseJSON(ctx, data + byte_order_mark, len - byte_order_mark, "response");
    free(data);
    return value;
}

JSValue json_answer(JSContext *ctx, int32_t handle, size_t len, bool *kept) {
    *kept = false;
    if (len < LAZY_BYTES)
        return parse_body(ctx, handle, len);
    HostJson root;
    int32_t code = host_json_root(handle, &root, NULL, 0);
    if (code == TOO_DEEP)
        return JS_ThrowRangeError(ctx, "the JSON is nested too deeply, at byte %u", root.node);
    if (code != OK)
        return JS_ThrowSyntaxError(ctx, "not JSON, at byte %u", root.node);
    if (root.kind != JSON_ARRAY && root.kind != JSON_OBJECT)
        return parse_body(ctx, handle, len);
    Document *document = js_malloc(ctx, sizeof *document);
    if (!document)
        return JS_EXCEPTION;
    *document = (Document){.handle = handle, .objects = 1};          /* held while its root is made */
    documents++;
    JSValue value = value_new(ctx, document, &root);
    *kept = --document->objects > 0;
    if (!*kept)
        document_free(JS_GetRuntime(ctx), document);
    return value;
}

/* ---- as text ---- */

static bool write_value(JSContext *ctx, Text *text, JSValueConst value, int depth);

/* What JSON.stringify writes; false where that is nothing, or an exception. */
static bool write_plain(JSContext *ctx, Text *text, JSValueConst value) {
    JSValue json = JS_JSONStringify(ctx, value, JS_UNDEFINED, JS_UNDEFINED);
    size_t len;
    const char *utf8 = JS_IsString(json) ? string_to_utf8(ctx, &len, json) : NULL;
    if (utf8)
        text_add(text, utf8, len);
    JS_FreeCString(ctx, utf8);
    JS_FreeValue(ctx, json);
    return utf8;
}

static bool write_array(JSContext *ctx, Text *text, JSValueConst array, int depth) {
    int64_t len = 0;
    JS_GetLength(ctx, array, &len);
    text_puts(text, "[");
    for (int64_t i = 0; i < len; i++) {
        if (i)
            text_puts(text, ",");
        JSValue item = JS_GetPropertyInt64(ctx, array, i);
        if (!JS_IsException(item) && !write_value(ctx, text, item, depth) && !JS_HasException(ctx))
            text_puts(text, "null");
        JS_FreeValue(ctx, item);
        if (JS_HasException(ctx))
            return false;
    }
    text_puts(text, "]");
    return true;
}

/* `"name":value`, if the value has a JSON form. */
static void write_member(JSContext *ctx, Text *text, JSAtom name, JSValueConst value, bool comma, int depth) {
    size_t before = text->len;
    JSValue key = JS_AtomToString(ctx, name);
    text_puts(text, comma ? "," : "");
    bool written = write_plain(ctx, text, key);
    text_puts(text, ":");
    if (!written || !write_value(ctx, text, value, depth))
        text->len = before;
    JS_FreeValue(ctx, key);
}

static bool write_object(JSContext *ctx, Text *text, JSValueConst object, int depth) {
    JSPropertyEnum *names;
    uint32_t count;
    if (JS_GetOwnPropertyNames(ctx, &names, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0)
        return false;
    text_puts(text, "{");
    size_t begin = text->len;
    for (uint32_t i = 0; i < count && !JS_HasException(ctx); i++) {
        JSValue value = JS_GetProperty(ctx, object, names[i].atom);
        if (!JS_IsException(value))
            write_member(ctx, text, names[i].atom, value, text->len > begin, depth);
        JS_FreeValue(ctx, value);
    }
    JS_FreePropertyEnum(ctx, names, count);
    text_puts(text, "}");
    return !JS_HasException(ctx);
}

/* The text of a lazy object of which nothing was read yet. */
static bool write_untouched(Text *text, const Lazy *lazy) {
    uint32_t len = host_json_text(lazy->document->handle, lazy->node, NULL, 0);
    char *room = malloc(len);
    if (room) {
        host_json_text(lazy->document->handle, lazy->node, room, len);
        text_add(text, room, len);
    }
    free(room);
    return room;
}

/* Writes a value as JSON.stringify does, but for lazy objects that are untouched. What is none of arrays and
   plain objects, or nested deeply (a circle, perhaps), is left to JSON.stringify. */
static bool write_value(JSContext *ctx, Text *text, JSValueConst value, int depth) {
    if (!JS_IsObject(value) || depth == 0)
        return write_plain(ctx, text, value);
    const Lazy *lazy = lazy_of(value);
    JSValue to_json = JS_IsNull(lazy ? lazy->known : JS_UNDEFINED) ? JS_UNDEFINED : JS_GetPropertyStr(ctx, value, "toJSON");
    bool plain = JS_IsArray(value) || JS_GetClassID(value) == plain_class || lazy;
    bool own = !JS_IsUndefined(to_json) || !plain;
    JS_FreeValue(ctx, to_json);
    if (own)
        return write_plain(ctx, text, value);
    if (lazy && JS_IsNull(lazy->known))
        return write_untouched(text, lazy);
    return JS_IsArray(value) ? write_array(ctx, text, value, depth - 1) : write_object(ctx, text, value, depth - 1);
}

bool json_write(JSContext *ctx, JSValueConst value, Text *text) {
    return documents && write_value(ctx, text, value, DEPTH);
}

int lazy_init(JSContext *ctx) {
    static JSClassExoticMethods exotic = {
        .get_own_property = get_own_property,
        .get_own_property_names = get_own_property_names,
        .delete_property = delete_property,
        .define_own_property = define_own_property,
    };
    static const JSClassDef definition = {.class_name = "Object", .finalizer = finalize, .gc_mark = mark, .exotic = &exotic};
    JSRuntime *runtime = JS_GetRuntime(ctx);
    JSValue object = JS_NewObject(ctx);
    plain_class = JS_GetClassID(object);
    JS_NewClassID(runtime, &lazy_class);
    int failed = JS_NewClass(runtime, lazy_class, &definition);
    JS_SetClassProto(ctx, lazy_class, JS_GetPrototype(ctx, object));
    JS_FreeValue(ctx, object);
    return failed;
}
