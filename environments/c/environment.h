/* What the files of the C environment share; the public side is sdk/c/orfa.h.
 *
 * text.c    growable text, and the encodings that it takes part in
 * format.c  the three format languages: URLs, pointers, templates
 * json.c    reading JSON, walking it, joining lists
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

void format_url(text *out, const char *format, arguments *args);
void format_pointer(text *out, const char *format, arguments *args);
void format_template(text *out, const char *format, arguments *args);

/* Memory of which `len` bytes are text, with the zeroed room behind it that the parser wants. */
char *json_room(uint32_t len);
/* Reads text made by json_room, in its place; NULL with a position where it isn't JSON. */
orfa_value json_read(char *room, uint32_t len, size_t *position);

static inline yyjson_val *json(orfa_value value) { return (yyjson_val *)value; }

/* Ends the run because there is no memory. */
_Noreturn void out_of_memory(void);

#endif
