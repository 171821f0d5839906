/* What the files of the C environment share; the public side is sdk/c/orfa.h.
 *
 * text.c    growable text, and the encodings that it takes part in
 * format.c  the three format languages: URLs, pointers, templates
 * json.c    reading JSON, walking it, joining lists
 * lazy.c    JSON that stays with the host
 * call.c    calls to services
 * answer.c  the answer, the console, and giving up
 * host.c    the paper's functions, one to one
 * wasi.c    what wasi-libc would ask a system for: there is none */
#ifndef ENVIRONMENT_H
#define ENVIRONMENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <orfa.h>
#include "yyjson.h"

/* What an orfa_out points to, and every other text that grows. `close` is the bracket that is still due. */
struct orfa_out_s {
    char *data;
    uint32_t len;
    uint32_t capacity;
    char close;
};
typedef struct orfa_out_s text;

/* A variable argument list that survives being handed down. */
typedef struct {
    va_list list;
} arguments;

void text_byte(text *out, char byte);
/* Room for `len` bytes behind its end. */
char *text_room(text *out, uint32_t len);
void text_add(text *out, const char *data, uint32_t len);
void text_string(text *out, const char *string);
void text_integer(text *out, long long number);
void text_unsigned(text *out, unsigned long long number);
void text_percent_encoded(text *out, const char *data, uint32_t len);
void text_json(text *out, orfa_value value);
void text_json_string(text *out, const char *string);
void text_json_double(text *out, double number);
/* Ends it with a NUL that isn't counted, and gives its bytes. */
char *text_terminated(text *out);

/* `changes` says that the call may change something. */
void format_url(text *out, const char *format, arguments *args, bool changes);
void format_pointer(text *out, const char *format, arguments *args);
void format_template(text *out, const char *format, arguments *args);

/* Memory of which `len` bytes are text, with the zeroed room behind it that the parser wants. */
char *json_room(uint32_t len);
/* Reads text made by json_room, in its place; NULL with a position where it isn't JSON. */
orfa_value json_read(char *room, uint32_t len, size_t *position);

/* A lazy value: a type and subtypes that yyjson doesn't know, the count of children where yyjson has it,
 * the future above; the other word is the place in the document above, and below how long its text is, or
 * where its children are. */
enum {
    LAZY_ARRAY = YYJSON_TYPE_RAW | 1 << 5,
    LAZY_OBJECT = YYJSON_TYPE_RAW | 2 << 5,
    LAZY_FETCHED = 4 << 5,
    LAZY_FUTURE_BIT = 40,
};

/* The document of a response, if it is an array or object. */
orfa_value lazy_root(orfa_future future, int *code, size_t *position);
yyjson_val *lazy_children(yyjson_val *lazy);
/* A member, kept; or, if it is no text and no container, in `scratch` where that isn't NULL. */
yyjson_val *lazy_member(yyjson_val *lazy, const char *name, uint32_t len, yyjson_val *scratch);
/* The number, true or false that such a member is, if it was read ahead by the name that was asked for last. */
bool lazy_again(yyjson_val *lazy, const char *name, yyjson_val *scratch);
/* Where a value stands among the children that were fetched: it may have been asked for before. */
yyjson_val *lazy_place(yyjson_val *container, yyjson_val *value);
void lazy_text(text *out, yyjson_val *lazy);

static inline bool is_lazy(yyjson_val *value) { return value && value->tag & 3 << 5; }

static inline uint32_t lazy_count(yyjson_val *lazy) { return (uint32_t)(lazy->tag >> YYJSON_TAG_BIT); }

/* A value as it is, which may be lazy. */
static inline yyjson_val *raw(orfa_value value) { return (yyjson_val *)value; }

/* Whether it is a number that no other type holds, as its text. */
static inline bool is_big(yyjson_val *value) { return yyjson_is_raw(value) && !is_lazy(value); }

static inline bool is_object(orfa_value value) {
    return yyjson_is_obj(raw(value)) || (is_lazy(raw(value)) && (raw(value)->tag & LAZY_OBJECT) == LAZY_OBJECT);
}

/* A value as yyjson has it; a lazy one fetches its children for that. */
static inline yyjson_val *json(orfa_value value) {
    return is_lazy(raw(value)) ? lazy_children(raw(value)) : raw(value);
}

/* Ends the run because there is no memory. */
_Noreturn void out_of_memory(void);

#endif
