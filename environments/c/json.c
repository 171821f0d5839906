/* Reading JSON, walking it by JSON Pointers, joining lists.
 *
 * Values are yyjson's, or lazy (lazy.c). yyjson's values are in memory in the order of the text, so reaching
 * element n of an array takes n steps. A few cursors remember the position of the last walk through an array:
 * a loop over "/%d/id" takes one step per iteration. */
#include <stdlib.h>
#include <string.h>
#include "environment.h"

enum { CURSORS = 16 };

typedef struct {
    yyjson_val *array;
    yyjson_val *item;
    uint32_t at;
} cursor;

typedef struct {
    yyjson_val *key;
    yyjson_val *item;
} entry;

/* An index of an array's elements by one of their members: open addressing, at most half full. */
typedef struct index_s {
    struct index_s *next;
    yyjson_val *array;
    const char *name;
    uint32_t mask;
    entry slots[];
} index_table;

static cursor cursors[CURSORS];
static index_table *indexes;

/* ---- Reading ---- */

char *json_room(uint32_t len) {
    char *room = orfa_alloc(len + YYJSON_PADDING_SIZE);
    memset(room + len, 0, YYJSON_PADDING_SIZE);
    return room;
}

orfa_value json_read(char *room, uint32_t len, size_t *position) {
    yyjson_read_err error;
    yyjson_read_flag flags = YYJSON_READ_INSITU | YYJSON_READ_BIGNUM_AS_RAW;
    yyjson_doc *doc = yyjson_read_opts(room, len, flags, NULL, &error);
    if (!doc && error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) out_of_memory();
    if (!doc) *position = error.pos;
    return (orfa_value)yyjson_doc_get_root(doc);
}

orfa_value orfa_json(const void *data, int len) {
    if (len <= 0) return NULL;
    size_t position;
    char *room = memcpy(json_room(len), data, len);
    orfa_value value = json_read(room, len, &position);
    if (!value) orfa_fail("the text is not JSON, at byte %u", (unsigned)position);
    return value;
}

/* ---- Walking ---- */

static yyjson_val *behind(yyjson_val *container) { return unsafe_yyjson_get_next(container); }

static yyjson_val *member(yyjson_val *object, const char *name, uint32_t len) {
    return is_lazy(object) ? lazy_member(object, name, len, NULL) : yyjson_obj_getn(object, name, len);
}

static yyjson_val *element(yyjson_val *array, uint32_t n) {
    if (n >= unsafe_yyjson_get_len(array)) return NULL;
    if (unsafe_yyjson_arr_is_flat(array)) return unsafe_yyjson_get_first(array) + n;
    cursor *last = &cursors[((uintptr_t)array / sizeof(yyjson_val)) % CURSORS];
    if (last->array != array || last->at > n) *last = (cursor){array, unsafe_yyjson_get_first(array), 0};
    for (; last->at < n; last->at++) last->item = unsafe_yyjson_get_next(last->item);
    return last->item;
}

/* Follows one token of a pointer; ~1 is a slash and ~0 a tilde. Unescapes the token in place. */
static yyjson_val *step(yyjson_val *value, char *token, char *end) {
    if (!is_object((orfa_value)value)) {
        char *digits;
        unsigned long n = strtoul(token, &digits, 10);
        bool number = token < end && digits == end && *token >= '0' && *token <= '9';
        yyjson_val *array = json((orfa_value)value);
        return number && yyjson_is_arr(array) ? element(array, n) : NULL;
    }
    char *to = token;
    for (char *from = token; from < end; from++) {
        bool escaped = *from == '~' && from + 1 < end && (from[1] == '0' || from[1] == '1');
        *to++ = escaped ? (*++from == '1' ? '/' : '~') : *from;
    }
    return member(value, token, to - token);
}

static yyjson_val *walk(yyjson_val *value, char *pointer) {
    while (value && *pointer == '/') {
        char *token = pointer + 1;
        pointer = token + strcspn(token, "/");
        value = step(value, token, pointer);
    }
    return *pointer ? NULL : value;
}

static yyjson_val *at(orfa_value value, const char *pointer, va_list list) {
    static text scratch;
    if (!*pointer) return raw(value);
    arguments args;
    va_copy(args.list, list);
    scratch.len = 0;
    format_pointer(&scratch, pointer, &args);
    return walk(raw(value), text_terminated(&scratch));
}

/* Like `at`, but doesn't store a number, true or false. Most pointers are one name without anything to format. */
static yyjson_val *at_once(orfa_value value, const char *pointer, va_list list) {
    static yyjson_val scratch;
    const char *end = pointer + 1;
    if (*pointer != '/' || !is_lazy(raw(value)) || !is_object(value)) return at(value, pointer, list);
    if (lazy_again(raw(value), pointer + 1, &scratch)) return &scratch;
    while (*end && *end != '/' && *end != '~' && *end != '%') end++;
    return *end ? at(value, pointer, list) : lazy_member(raw(value), pointer + 1, end - pointer - 1, &scratch);
}

/* Calls `walk` from a variadic function whose last named parameter is `pointer`. */
#define FOUND(found, walk)                          \
    va_list list;                                   \
    va_start(list, pointer);                        \
    yyjson_val *found = walk(value, pointer, list); \
    va_end(list)
#define AT(found) FOUND(found, at)
#define AT_ONCE(found) FOUND(found, at_once)

orfa_value orfa_at(orfa_value value, const char *pointer, ...) {
    AT(found);
    return (orfa_value)found;
}

/* Whether a value is an integer of 64 bits. 3.0 is one. */
static bool whole(yyjson_val *value, long long *number) {
    if (yyjson_is_real(value)) {
        double real = unsafe_yyjson_get_real(value);
        if (!(real >= -9007199254740992.0 && real <= 9007199254740992.0)) return false;
        *number = (long long)real;
        return (double)*number == real;
    }
    if (!yyjson_is_int(value)) return false;
    *number = unsafe_yyjson_get_sint(value);
    return !(unsafe_yyjson_is_uint(value) && *number < 0);
}

int orfa_int(orfa_value value, int otherwise, const char *pointer, ...) {
    AT_ONCE(found);
    long long number;
    return whole(found, &number) && number == (int)number ? (int)number : otherwise;
}

long long orfa_long(orfa_value value, long long otherwise, const char *pointer, ...) {
    AT_ONCE(found);
    long long number;
    return whole(found, &number) ? number : otherwise;
}

double orfa_num(orfa_value value, double otherwise, const char *pointer, ...) {
    AT_ONCE(found);
    if (is_big(found)) return strtod(unsafe_yyjson_get_raw(found), NULL);
    return yyjson_is_num(found) ? unsafe_yyjson_get_num(found) : otherwise;
}

int orfa_bool(orfa_value value, int otherwise, const char *pointer, ...) {
    AT_ONCE(found);
    return yyjson_is_bool(found) ? unsafe_yyjson_get_bool(found) : otherwise;
}

/* A text that contains U+0000 can't be a C string: the program would check a shorter text than %v sends. */
const char *orfa_str(orfa_value value, const char *otherwise, const char *pointer, ...) {
    AT(found);
    if (!yyjson_is_str(found)) return otherwise;
    const char *string = unsafe_yyjson_get_str(found);
    return memchr(string, 0, unsafe_yyjson_get_len(found)) ? otherwise : string;
}

int orfa_is(orfa_value value, const char *string) { return yyjson_equals_str(json(value), string); }

int orfa_has(orfa_value container, const char *string) {
    if (is_object(container)) return member(raw(container), string, strlen(string)) != NULL;
    for orfa_each(item, container) {
        if (orfa_is(item, string)) return 1;
    }
    return 0;
}

int orfa_len(orfa_value value) {
    if (is_lazy(raw(value))) return (int)lazy_count(raw(value));
    bool counts = yyjson_is_ctn(json(value)) || yyjson_is_str(json(value));
    return counts ? (int)unsafe_yyjson_get_len(json(value)) : 0;
}

orfa_value orfa_next(orfa_value container, orfa_value previous) {
    yyjson_val *whole = json(container);
    if (!yyjson_is_ctn(whole) || !unsafe_yyjson_get_len(whole)) return NULL;
    yyjson_val *last = raw(previous);
    if (last && is_lazy(raw(container))) last = lazy_place(whole, last);
    yyjson_val *next = last ? unsafe_yyjson_get_next(last) : unsafe_yyjson_get_first(whole);
    if (next >= behind(whole)) return NULL;
    return (orfa_value)(yyjson_is_obj(whole) ? next + 1 : next);
}

/* ---- Joining ---- */

static bool is_key(yyjson_val *value) { return yyjson_is_str(value) || yyjson_is_num(value); }

static uint32_t hash(yyjson_val *key) {
    if (yyjson_is_num(key)) return (uint32_t)((key->uni.u64 * 0x9E3779B97F4A7C15ULL) >> 32);
    uint32_t sum = 2166136261u;
    const char *bytes = unsafe_yyjson_get_str(key);
    for (size_t i = unsafe_yyjson_get_len(key); i--;) sum = (sum ^ (unsigned char)bytes[i]) * 16777619u;
    return sum ^ sum >> 15;
}

static bool same(yyjson_val *a, yyjson_val *b) {
    if (yyjson_is_num(a)) return a->tag == b->tag && a->uni.u64 == b->uni.u64;
    if (!yyjson_is_str(b) || unsafe_yyjson_get_len(a) != unsafe_yyjson_get_len(b)) return false;
    return !memcmp(unsafe_yyjson_get_str(a), unsafe_yyjson_get_str(b), unsafe_yyjson_get_len(a));
}

/* Returns the slot of the element with this key, or the empty slot where it belongs. */
static entry *slot(index_table *index, yyjson_val *key) {
    uint32_t at = hash(key) & index->mask;
    while (index->slots[at].item && !same(index->slots[at].key, key)) at = (at + 1) & index->mask;
    return &index->slots[at];
}

static index_table *new_index(yyjson_val *array, const char *name) {
    uint32_t size = 8, len = strlen(name);
    while (size < unsafe_yyjson_get_len(array) * 2) size *= 2;
    index_table *index = calloc(1, sizeof *index + size * sizeof(entry));
    char *own_name = strdup(name);
    if (!index || !own_name) out_of_memory();
    *index = (index_table){indexes, array, own_name, size - 1};
    for orfa_each(item, (orfa_value)array) {
        yyjson_val *key = member(raw(item), name, len);
        if (!is_key(key)) continue;
        entry *place = slot(index, key);
        if (!place->item) *place = (entry){key, raw(item)};
    }
    return indexes = index;
}

static index_table *index_of(yyjson_val *array, const char *name) {
    index_table *index = indexes;
    while (index && (index->array != array || strcmp(index->name, name))) index = index->next;
    return index ? index : new_index(array, name);
}

orfa_value orfa_find(orfa_value array, const char *name, orfa_value key) {
    if (!yyjson_is_arr(json(array)) || !is_key(raw(key))) return NULL;
    return (orfa_value)slot(index_of(json(array), name), raw(key))->item;
}

orfa_value orfa_pluck(orfa_value array, const char *name) {
    yyjson_val *list = orfa_alloc((orfa_len(array) + 1) * sizeof *list);
    uint32_t count = 0;
    if (yyjson_is_arr(json(array))) {
        index_table *index = index_of(json(array), name);
        for orfa_each(item, array) {
            yyjson_val *key = member(raw(item), name, strlen(name));
            if (is_key(key) && slot(index, key)->item == raw(item)) list[++count] = *key;
        }
    }
    list->tag = (uint64_t)count << YYJSON_TAG_BIT | YYJSON_TYPE_ARR;
    list->uni.ofs = (count + 1) * sizeof *list;
    return (orfa_value)list;
}

/* ---- Projecting ---- */

/* Returns the number of slots that a value occupies, including its children. */
static uint32_t span(yyjson_val *value) { return unsafe_yyjson_get_next(value) - value; }

/* Reads the next name of a list and the value of that member. Returns whether there was a name. */
static bool next_name(const char **names, yyjson_val *object, yyjson_val *key, yyjson_val **value) {
    const char *name = *names + strspn(*names, ", ");
    uint32_t len = strcspn(name, ", ");
    unsafe_yyjson_set_strn(key, name, len);
    *value = len ? member(object, name, len) : NULL;
    *names = name + len;
    return len;
}

orfa_value orfa_pick(orfa_value object, const char *names) {
    if (!is_object(object)) return NULL;
    yyjson_val key, *value;
    uint32_t count = 0, size = 1;
    for (const char *at = names; next_name(&at, raw(object), &key, &value);) {
        if (value) count++, size += 1 + span(value);
    }
    yyjson_val *picked = orfa_alloc(size * sizeof *picked), *to = picked + 1;
    picked->tag = (uint64_t)count << YYJSON_TAG_BIT | YYJSON_TYPE_OBJ;
    picked->uni.ofs = size * sizeof *picked;
    for (const char *at = names; next_name(&at, raw(object), &key, &value);) {
        if (!value) continue;
        *to++ = key;
        memcpy(to, value, span(value) * sizeof *to);
        to += span(value);
    }
    return (orfa_value)picked;
}
