/* Declarations that the files of the C environment share; the public header is sdk/c/orfa.h.
 *
 * text.c    growable text, and the encodings of text
 * format.c  the three format languages: URLs, JSON Pointers, templates
 * json.c    reading and walking JSON, joining lists
 * lazy.c    JSON that stays with the host
 * call.c    calls to services
 * answer.c  the answer, the console, and failing
 * host.c    the functions of the ABI, one to one
 * wasi.c    stubs for the system calls of wasi-libc */
#ifndef ENVIRONMENT_H
#define ENVIRONMENT_H

#include <stdarg.h>
#include <stdbool.h>
#include <orfa.h>
#include "yyjson.h"

/* Growable text, which an orfa_out points to. `close` is the closing bracket that is still to be written. */
struct orfa_out_s {
    char *data;
    uint32_t len;
    uint32_t capacity;
    char close;
};
typedef struct orfa_out_s text;

/* A variable argument list that can be passed to other functions by pointer. */
typedef struct {
    va_list list;
} arguments;

void text_byte(text *out, char byte);
/* Returns room for `len` bytes after the end of the text. */
char *text_room(text *out, uint32_t len);
void text_add(text *out, const char *data, uint32_t len);
void text_string(text *out, const char *string);
void text_integer(text *out, long long number);
void text_unsigned(text *out, unsigned long long number);
void text_percent_encoded(text *out, const char *data, uint32_t len);
void text_json(text *out, orfa_value value);
void text_json_string(text *out, const char *string);
void text_json_double(text *out, double number);
/* Adds a NUL that isn't counted, and returns the bytes. */
char *text_terminated(text *out);

/* `changes`: whether the call may change something. */
void format_url(text *out, const char *format, arguments *args, bool changes);
void format_pointer(text *out, const char *format, arguments *args);
void format_template(text *out, const char *format, arguments *args);

/* Allocates room for `len` bytes of text, followed by the zeroed padding that the parser needs. */
char *json_room(uint32_t len);
/* Parses text from json_room in place. Returns NULL and sets the position if it isn't JSON. */
orfa_value json_read(char *room, uint32_t len, size_t *position);

/* A lazy value has a type and subtypes that yyjson doesn't know. Its tag has the count of children where yyjson
 * has it, and the future in the upper bits. The other word has the node in the document in its upper half; the
 * lower half is the length of its text or, once fetched, the address of its children. */
enum {
    LAZY_ARRAY = YYJSON_TYPE_RAW | 1 << 5,
    LAZY_OBJECT = YYJSON_TYPE_RAW | 2 << 5,
    LAZY_FETCHED = 4 << 5,
    LAZY_FUTURE_BIT = 40,
};

/* Returns the root of a response's body if it is an array or object. */
orfa_value lazy_root(orfa_future future, int *code, size_t *position);
yyjson_val *lazy_children(yyjson_val *lazy);
/* Returns a member as a value that lives on, or in `scratch` if that isn't NULL and the member is neither text
 * nor a container. */
yyjson_val *lazy_member(yyjson_val *lazy, const char *name, uint32_t len, yyjson_val *scratch);
/* Reads such a member of the last name that was used into `scratch`, if it is a number, true or false and was
 * read ahead. */
bool lazy_again(yyjson_val *lazy, const char *name, yyjson_val *scratch);
/* Returns the position of a value among the fetched children. The value may have been returned before the fetch. */
yyjson_val *lazy_place(yyjson_val *container, yyjson_val *value);
void lazy_text(text *out, yyjson_val *lazy);

static inline bool is_lazy(yyjson_val *value) { return value && value->tag & 3 << 5; }

static inline uint32_t lazy_count(yyjson_val *lazy) { return (uint32_t)(lazy->tag >> YYJSON_TAG_BIT); }

/* Returns the value unchanged; it may be lazy. */
static inline yyjson_val *raw(orfa_value value) { return (yyjson_val *)value; }

/* Whether a value is a number that fits no other type. Such a number is stored as its text. */
static inline bool is_big(yyjson_val *value) { return yyjson_is_raw(value) && !is_lazy(value); }

static inline bool is_object(orfa_value value) {
    return yyjson_is_obj(raw(value)) || (is_lazy(raw(value)) && (raw(value)->tag & LAZY_OBJECT) == LAZY_OBJECT);
}

/* Returns a value in yyjson's form, which fetches the children of a lazy one. */
static inline yyjson_val *json(orfa_value value) {
    return is_lazy(raw(value)) ? lazy_children(raw(value)) : raw(value);
}

/* Ends the run because memory is exhausted. */
_Noreturn void out_of_memory(void);

#endif
