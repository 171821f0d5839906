//! JSON that stays with the host: objects of large answers that a program reads only in part.
//!
//! A lazy object is an exotic one without properties of its own. Members that are read are fetched from the host and
//! stored in `known`, an ordinary object. Any other operation (enumerating, changing) first fetches all members;
//! from then on `known` is the object. Arrays are real ones, created when they are first read: their items are cheap,
//! since objects among them are lazy.
//!
//! Reading the same member of many objects would cost one host call each. From the second object in a row on, the
//! member is read ahead for the objects that follow.
#include "host.h"

/* Answers of at least this length stay with the host: parsing a smaller one is faster than host calls. */
static const size_t LAZY_BYTES = 4096;

enum { CHUNK = 128, COLUMNS = 8, COLUMN = 64, COLUMN_TEXTS = 2048, LONGEST_NAME = 16384 };

typedef struct Document Document;

typedef struct {
    Document *document;
    uint32_t node;
    JSAtom read;                                                     /* the last name read; it may be freed */
    uint16_t following;                                              /* items of its array directly after it */
    bool whole;                                                      /* `known` has all members */
    JSValue known;                                                   /* null until a member is stored */
} Lazy;

/* Room for several lazy objects of a document, so that they need no allocation each. */
typedef struct Chunk { struct Chunk *next; Lazy objects[CHUNK]; } Chunk;

/* The document of one response. It is freed with its last lazy object. */
struct Document {
    int32_t handle;
    uint32_t objects, made;                                          /* alive, and created in total */
    Chunk *chunks;
};

/* A member that was read of neighbouring objects: `values` are those of the `count` objects from `first` on, more of
   them each time. If `count` is 0, `first` is the object whose reading would continue the sequence. */
typedef struct {
    JSAtom name;
    Document *document;
    Lazy *first;
    uint32_t count, ahead;
    HostJson values[COLUMN];
    char texts[COLUMN_TEXTS];
} Column;

static JSClassID lazy_class;
static Column columns[COLUMNS];

static Lazy *lazy_of(JSValueConst object) { return JS_GetOpaque(object, lazy_class); }

/* ---- reading from the host ---- */

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
    for (Column *column = columns; column < columns + COLUMNS; column++) {
        if (column->document == document)
            column->document = NULL;
    }
    for (Chunk *chunk = document->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        js_free_rt(runtime, chunk);
    }
    js_free_rt(runtime, document);
}

/* Parses a value's own text: a number beyond the doubles, or a string with an unpaired surrogate. */
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

/* Converts a value of the host to JavaScript. */
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

/* Returns the children of a container, to be freed; NULL and an exception if there is no memory. */
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

/* Stores in each of these objects, which were created in order, how many follow it in its chunk. */
static void put_in_line(JSValue *objects, uint32_t count) {
    for (uint32_t i = count, following = 0; i-- > 0;) {
        Lazy *lazy = lazy_of(objects[i]);
        lazy->following = following = i + 1 < count && lazy + 1 == lazy_of(objects[i + 1]) ? following + 1 : 0;
    }
}

static JSValue array_new(JSContext *ctx, Document *document, const HostJson *array) {
    uint32_t count = array->len, room = count * sizeof(HostJson);
    HostJson *items = children_of(ctx, document, array->node, &room);
    JSValue *values = items ? js_malloc(ctx, count * sizeof *values + 1) : NULL;
    uint32_t made = 0, objects = 0;
    while (values && made < count) {
        values[made] = value_new(ctx, document, &items[made]);
        if (JS_IsException(values[made]))
            break;
        objects += items[made++].kind == JSON_OBJECT;
    }
    JSValue result = JS_EXCEPTION;
    if (values && made == count) {
        if (objects == count)
            put_in_line(values, count);
        result = JS_NewArrayFrom(ctx, count, values);
    }
    else
        while (made)
            JS_FreeValue(ctx, values[--made]);
    js_free(ctx, values);
    js_free(ctx, items);
    return result;
}

/* ---- properties of lazy objects ---- */

static JSAtom name_of(JSContext *ctx, Document *document, const HostJson *name) {
    if (name->kind == JSON_STRING)
        return JS_NewAtomLen(ctx, name->text, name->len);
    JSValue text = spelt_new(ctx, document, name->node);
    JSAtom atom = JS_IsException(text) ? JS_ATOM_NULL : JS_ValueToAtom(ctx, text);
    JS_FreeValue(ctx, text);
    return atom;
}

/* Returns whether `known` has the property, and its value. */
static int take_known(JSContext *ctx, const Lazy *lazy, JSAtom name, JSValue *value) {
    JSPropertyDescriptor found;
    int known = JS_IsNull(lazy->known) ? 0 : JS_GetOwnProperty(ctx, &found, lazy->known, name);
    if (known > 0)
        *value = found.value;
    return known;
}

/* Fetches all members and merges those of `known`, so that the properties have the order of the text. */
static bool fetch_all(JSContext *ctx, Lazy *lazy) {
    if (lazy->whole)
        return true;
    Document *document = lazy->document;
    uint32_t room = 1024;
    HostJson *members = children_of(ctx, document, lazy->node, &room);
    JSValue whole = members ? JS_NewObjectProto(ctx, JS_NULL) : JS_EXCEPTION;
    bool good = !JS_IsException(whole);
    /* The texts follow the last record, so the first name's address is the end of the records. */
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

/* The last name in the host's form, kept with its atom: often the same member is read of many objects. */
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

/* Converts the host's record of a property: returns 1 and `*value`, 0 if it doesn't exist, or -1. */
static int take_read(JSContext *ctx, Lazy *lazy, const HostJson *read, JSValue *value) {
    if (read->kind == JSON_MISSING)
        return 0;
    *value = value_new(ctx, lazy->document, read);
    return JS_IsException(*value) ? -1 : 1;
}

/* Asks the host for the property named by `last`. */
static int fetch_one(JSContext *ctx, Lazy *lazy, JSValue *value) {
    HostJson found;
    char text[512], *room = text;
    int32_t handle = lazy->document->handle;
    int32_t code = host_json_member(handle, lazy->node, last.text, last.len, 1, &found, room, sizeof text);
    if (code != OK)
        return 0;
    bool fits = found.kind != JSON_STRING || found.text;
    if (!fits && (room = js_malloc(ctx, found.len + 1)))
        host_json_member(handle, lazy->node, last.text, last.len, 1, &found, room, found.len + 1);
    int taken = room ? take_read(ctx, lazy, &found, value) : -1;
    if (room != text)
        js_free(ctx, room);
    return taken;
}

/* Returns the column that reads values of this name ahead, for one document at a time. */
static Column *column_of(JSContext *ctx, const Lazy *lazy, JSAtom name) {
    Column *column = &columns[name % COLUMNS];
    if (column->document != lazy->document || column->name != name) {
        JS_FreeAtom(ctx, column->name);
        column->name = JS_DupAtom(ctx, name), column->document = lazy->document, column->first = NULL;
    }
    return column;
}

/* Returns the record that was read ahead for an object; NULL if there is none. */
static const HostJson *already_read(const Column *column, const Lazy *lazy) {
    uint32_t past = ((uintptr_t)lazy - (uintptr_t)column->first) / sizeof *lazy;
    return column->first && past < column->count ? &column->values[past] : NULL;
}

/* Reads ahead if the object continues the sequence. */
static const HostJson *read_ahead(Column *column, Lazy *lazy) {
    bool next = column->first && lazy == column->first + column->count;
    column->ahead = !next ? 1 : column->ahead * 4 < COLUMN ? column->ahead * 4 : COLUMN;
    column->first = lazy + 1, column->count = 0;
    uint32_t count = lazy->following < column->ahead ? lazy->following + 1 : column->ahead;
    if (count < 2)
        return NULL;
    int32_t read = host_json_column(lazy->document->handle, lazy->node, last.text, last.len, 1, column->values, count, column->texts, COLUMN_TEXTS);
    if (read < 1)
        return NULL;
    column->first = lazy, column->count = read;
    return column->values;
}

/* Fetches one property: returns 1 and `*value`, 0 if it doesn't exist, or -1. */
static int fetch(JSContext *ctx, Lazy *lazy, JSAtom atom, JSValue *value) {
    Column *column = column_of(ctx, lazy, atom);
    const HostJson *read = already_read(column, lazy);
    if (!read && !name_as_text(ctx, atom))
        return last.symbol ? 0 : -1;                                 /* JSON has no symbols as names */
    /* The host accepts names that are UTF-8 and not longer than this. */
    if (!read && (last.len > LONGEST_NAME || has_unpaired(last.text, last.len)))
        return fetch_all(ctx, lazy) ? take_known(ctx, lazy, atom, value) : -1;
    if (!read)
        read = read_ahead(column, lazy);
    return read ? take_read(ctx, lazy, read, value) : fetch_one(ctx, lazy, value);
}

/* Stores a fetched object, which must be the same object the next time, or a scalar that was read twice in a row, so
   that further reads need no host call. */
static bool remember(JSContext *ctx, Lazy *lazy, JSAtom name, JSValueConst value) {
    bool again = lazy->read == name;
    lazy->read = name;
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
    if (!JS_IsExtensible(ctx, object))                               /* the engine only marks the lazy object */
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
    *document = (Document){.handle = handle, .objects = 1};          /* counts as one while the root is created */
    JSValue value = value_new(ctx, document, &root);
    *kept = --document->objects > 0;
    if (!*kept)
        document_free(JS_GetRuntime(ctx), document);
    return value;
}

/* ---- writing ---- */

bool lazy_is(JSValueConst value) { return JS_GetClassID(value) == lazy_class; }

bool lazy_is_untouched(JSValueConst lazy) { return JS_IsNull(lazy_of(lazy)->known); }

bool lazy_fetch(JSContext *ctx, JSValueConst lazy) { return fetch_all(ctx, lazy_of(lazy)); }

bool lazy_write(JSValueConst object, Text *text) {
    const Lazy *lazy = lazy_of(object);
    uint32_t len = host_json_text(lazy->document->handle, lazy->node, NULL, 0);
    char *room = malloc(len);
    if (room) {
        host_json_text(lazy->document->handle, lazy->node, room, len);
        text_add(text, room, len);
    }
    free(room);
    return room;
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
    JS_NewClassID(runtime, &lazy_class);
    int failed = JS_NewClass(runtime, lazy_class, &definition);
    JS_SetClassProto(ctx, lazy_class, JS_GetPrototype(ctx, object));
    JS_FreeValue(ctx, object);
    return failed;
}
