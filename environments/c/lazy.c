/* JSON that stays with the host: large answers that a query reads only in part.
 *
 * A lazy value is a yyjson_val of a type that yyjson doesn't know. Reading a member of it asks the host. Iterating
 * over it or indexing it fetches one level of children; from then on the value acts as that array or object of
 * yyjson's, whose containers are lazy in turn. A slot of a fetched level is one yyjson_val, and its address is the
 * value, fetched or not.
 *
 * Two lazy values may refer to the same part of a document. They share their children, which are fetched once for
 * each node, so that a loop that looks its container up in every iteration terminates.
 *
 * Reading the same member of many objects would cost one host call each. From the second object in a row on, the
 * member is read ahead for the objects that follow. */
#include <stdlib.h>
#include <string.h>
#include "environment.h"

enum { GUESS = 512, COLUMNS = 8, COLUMN = 64, COLUMN_NAME = 40, COLUMN_TEXTS = 2048, LONGEST_NAME = 16384 };

/* A member that was read by its name. The caller keeps a pointer to the value. */
typedef struct {
    yyjson_val value;
    uint32_t name_len;
    char name[];
} member;

/* The children of a node in a document. */
typedef struct {
    uint64_t key;
    yyjson_val *container;
} level;

/* All fetched levels: open addressing, at most half full. */
static struct {
    level *slots;
    uint32_t size, count;
} levels;

/* A member that was read of neighbouring objects. Its values for the objects that follow are read ahead, more of
 * them each time: `values` are those of the `count` objects from `first` on. */
typedef struct {
    yyjson_val *first;
    uint32_t count, ahead, name_len;
    char name[COLUMN_NAME];
    yyjson_val values[COLUMN];
    char texts[COLUMN_TEXTS];
} column;

static column columns[COLUMNS];
/* The column of the last pointer that was one plain name. */
static const column *latest;

static orfa_future future_of(yyjson_val *lazy) { return (orfa_future)(lazy->tag >> LAZY_FUTURE_BIT); }

static uint32_t node_of(yyjson_val *lazy) { return (uint32_t)(lazy->uni.u64 >> 32); }

/* Converts an orfa_json_value, as the host wrote it, to yyjson's form in place: only the first of its two words
 * differs. */
static void understand(yyjson_val *value, orfa_future future) {
    static const uint8_t tags[] = {
        [ORFA_JSON_NULL] = YYJSON_TYPE_NULL,
        [ORFA_JSON_FALSE] = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_FALSE,
        [ORFA_JSON_TRUE] = YYJSON_TYPE_BOOL | YYJSON_SUBTYPE_TRUE,
        [ORFA_JSON_UNSIGNED] = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_UINT,
        [ORFA_JSON_NEGATIVE] = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_SINT,
        [ORFA_JSON_REAL] = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL,
        [ORFA_JSON_BIG] = YYJSON_TYPE_RAW,
        [ORFA_JSON_STRING] = YYJSON_TYPE_STR,
        [ORFA_JSON_UNPAIRED] = YYJSON_TYPE_STR,
        [ORFA_JSON_ARRAY] = LAZY_ARRAY,
        [ORFA_JSON_OBJECT] = LAZY_OBJECT,
    };
    uint32_t kind = (uint32_t)value->tag;
    uint64_t len = value->tag >> 32;
    value->tag = tags[kind] | len << YYJSON_TAG_BIT;
    if (kind >= ORFA_JSON_ARRAY) value->tag |= (uint64_t)future << LAZY_FUTURE_BIT;
}

orfa_value lazy_root(orfa_future future, int *code, size_t *position) {
    yyjson_val *root = orfa_alloc(sizeof *root);
    *code = orfa_host_Json_root(future, (orfa_json_value *)root, NULL, 0);
    *position = node_of(root);
    bool container = *code == ORFA_OK && (uint32_t)root->tag >= ORFA_JSON_ARRAY;
    if (!container) return free(root), NULL;
    understand(root, future);
    return (orfa_value)root;
}

static uint64_t key_of(yyjson_val *lazy) { return (uint64_t)future_of(lazy) << 32 | node_of(lazy); }

/* Returns the slot of the level with this key, or the empty slot where it belongs. */
static level *slot_of(uint64_t key) {
    uint32_t at = (uint32_t)(key * 0x9E3779B97F4A7C15ULL >> 32);
    level *slot;
    do slot = &levels.slots[at++ & (levels.size - 1)];
    while (slot->container && slot->key != key);
    return slot;
}

/* Makes room for one more level. */
static void grow(void) {
    if (levels.count < levels.size / 2) return;
    level *before = levels.slots, *end = before + levels.size;
    levels.size = levels.size ? levels.size * 2 : 16;
    levels.slots = calloc(levels.size, sizeof *levels.slots);
    if (!levels.slots) out_of_memory();
    for (level *from = before; from < end; from++) {
        if (from->container) *slot_of(from->key) = *from;
    }
    free(before);
}

static yyjson_val *fetch(yyjson_val *lazy) {
    bool object = (lazy->tag & YYJSON_TAG_MASK) == LAZY_OBJECT;
    uint32_t count = lazy_count(lazy), slots = object ? count * 2 : count;
    uint32_t texts = (uint32_t)lazy->uni.u64;
    uint32_t room = slots * sizeof *lazy + (texts < GUESS ? texts + slots : GUESS);
    yyjson_val *container = orfa_alloc(sizeof *container + room);
    uint32_t needed = orfa_host_Json_children(future_of(lazy), node_of(lazy), container + 1, room);
    if (needed > room) {
        free(container);
        container = orfa_alloc(sizeof *container + needed);
        orfa_host_Json_children(future_of(lazy), node_of(lazy), container + 1, needed);
    }
    container->tag = (uint64_t)count << YYJSON_TAG_BIT | (object ? YYJSON_TYPE_OBJ : YYJSON_TYPE_ARR);
    container->uni.ofs = (slots + 1) * sizeof *container;
    for (uint32_t i = 1; i <= slots; i++) understand(container + i, future_of(lazy));
    return container;
}

yyjson_val *lazy_children(yyjson_val *lazy) {
    if (lazy->tag & LAZY_FETCHED) return (yyjson_val *)(uintptr_t)(uint32_t)lazy->uni.u64;
    grow();
    level *known = slot_of(key_of(lazy));
    if (!known->container) {
        *known = (level){key_of(lazy), fetch(lazy)};
        levels.count++;
    }
    lazy->tag |= LAZY_FETCHED;
    lazy->uni.u64 = (uint64_t)node_of(lazy) << 32 | (uint32_t)(uintptr_t)known->container;
    return known->container;
}

/* Allocates a value that lives on, together with its name and its text. */
static yyjson_val *keep(const yyjson_val *found, const char *name, uint32_t len, const char *text, uint32_t text_len) {
    member *kept = orfa_alloc(sizeof *kept + len + text_len);
    kept->value = *found;
    kept->name_len = len;
    memcpy(kept->name, name, len);
    if (text_len) kept->value.uni.str = memcpy(kept->name + len, text, text_len);
    return &kept->value;
}

/* Returns the column that reads members of this name ahead; NULL if the name is too long for it. */
static column *column_of(const char *name, uint32_t len) {
    if (len == 0 || len > COLUMN_NAME) return NULL;
    column *column = &columns[(len * 7 + (uint8_t)name[0] * 31 + (uint8_t)name[len - 1]) % COLUMNS];
    if (column->name_len != len || memcmp(column->name, name, len)) {
        memcpy(column->name, name, len);
        column->name_len = len, column->first = NULL, column->count = 0;
    }
    return column;
}

/* Returns the host's record of an object's member if it was read ahead or is now. Two lazy values in adjacent slots
 * are items of one array. */
static const yyjson_val *read_ahead(column *column, yyjson_val *lazy) {
    uint32_t past = ((uintptr_t)lazy - (uintptr_t)column->first) / sizeof *lazy;
    if (past > column->count || !column->first) {
        column->ahead = 1, column->count = 0;
    } else if (past == column->count) {
        column->ahead = column->ahead * 4 < COLUMN ? column->ahead * 4 : COLUMN;
        int32_t count = orfa_host_Json_column(future_of(lazy), node_of(lazy), column->name, column->name_len, 0,
                                              (orfa_json_value *)column->values, column->ahead, column->texts, COLUMN_TEXTS);
        column->first = lazy, column->count = count > 0 ? count : 0, past = 0;
    }
    if (past < column->count) return &column->values[past];
    column->first = lazy + 1;
    return NULL;
}

/* Asks the host for a member. A text goes to `room`, or to memory of its own if that is too small. */
static bool ask(yyjson_val *lazy, const char *name, uint32_t len, yyjson_val *found, char *room) {
    orfa_json_value *value = (orfa_json_value *)found;
    orfa_future future = future_of(lazy);
    uint32_t node = node_of(lazy);
    if (orfa_host_Json_member(future, node, name, len, 0, value, room, GUESS) != ORFA_OK) return false;
    if (value->kind >= ORFA_JSON_BIG && value->kind < ORFA_JSON_ARRAY && !value->text) {
        uint32_t needed = value->len + 1;
        orfa_host_Json_member(future, node, name, len, 0, value, orfa_alloc(needed), needed);
    }
    return true;
}

yyjson_val *lazy_member(yyjson_val *lazy, const char *name, uint32_t len, yyjson_val *scratch) {
    if (lazy->tag & LAZY_FETCHED) return yyjson_obj_getn(lazy_children(lazy), name, len);
    if ((lazy->tag & YYJSON_TAG_MASK) != LAZY_OBJECT) return NULL;
    if (len > LONGEST_NAME) return yyjson_obj_getn(lazy_children(lazy), name, len); /* longer than the host accepts */
    char room[GUESS];
    yyjson_val found;
    column *column = column_of(name, len);
    const yyjson_val *read = column ? read_ahead(column, lazy) : NULL;
    if (scratch) latest = column;
    if (read) found = *read;
    else if (!ask(lazy, name, len, &found, room)) return NULL;
    uint32_t kind = (uint32_t)found.tag, text_len = 0;
    if (kind == ORFA_JSON_MISSING) return NULL;
    if (kind >= ORFA_JSON_BIG && kind < ORFA_JSON_ARRAY) text_len = (uint32_t)(found.tag >> 32) + 1;
    const char *text = (const char *)(uintptr_t)(uint32_t)found.uni.u64;
    understand(&found, future_of(lazy));
    if (!scratch || text_len || is_lazy(&found)) return keep(&found, name, len, text, text_len);
    *scratch = found;
    return scratch;
}

bool lazy_again(yyjson_val *lazy, const char *name, yyjson_val *scratch) {
    if (!latest) return false;
    uint32_t past = ((uintptr_t)lazy - (uintptr_t)latest->first) / sizeof *lazy, same = 0;
    if (past >= latest->count) return false;
    while (same < latest->name_len && name[same] == latest->name[same]) same++;
    if (same < latest->name_len || name[same]) return false;
    *scratch = latest->values[past];
    if ((uint32_t)scratch->tag >= ORFA_JSON_BIG) return false;
    understand(scratch, 0);
    return true;
}

yyjson_val *lazy_place(yyjson_val *container, yyjson_val *value) {
    uint32_t slots = container->uni.ofs / sizeof *container;
    if (value > container && value < container + slots) return value;
    member *kept = (member *)value;
    return yyjson_obj_getn(container, kept->name, kept->name_len);
}

void lazy_text(text *out, yyjson_val *lazy) {
    uint32_t len = orfa_host_Json_text(future_of(lazy), node_of(lazy), NULL, 0);
    orfa_host_Json_text(future_of(lazy), node_of(lazy), text_room(out, len), len);
    out->len += len;
}
