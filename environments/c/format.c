/* The three format languages of orfa.h: URLs, JSON Pointers, templates. They share the % words; each has its own
 * functions that write the arguments.
 *
 * A template is JSON whose commas are written late: a comma is only remembered until something follows it, so
 * that "{...%v,a:1}" also works for an empty object. */
#include <ctype.h>
#include <string.h>
#include "environment.h"

/* The functions that write the arguments of a format language; NULL if it doesn't have them. */
typedef struct {
    void (*string)(text *out, const char *string);
    void (*value)(text *out, orfa_value value);
    void (*real)(text *out, double number);
} language;

typedef struct {
    text *out;
    uint32_t depth;
    bool comma;
} writer;

static _Noreturn void unknown_word(const char *format) { orfa_fail("unknown %% word in \"%s\"", format); }

static void write_double(text *out, double number) { text_json_double(out, number); }

/* Writes the argument of the word at `at`, after its %, and returns the position after the word. */
static const char *word(text *out, const char *at, arguments *args, const language *in, const char *format) {
    if (at[0] == 'l' && at[1] == 'l' && (at[2] == 'd' || at[2] == 'u')) {
        long long number = va_arg(args->list, long long);
        if (at[2] == 'd') text_integer(out, number);
        else text_unsigned(out, number);
        return at + 3;
    }
    switch (*at) {
    case '%': text_byte(out, '%'); break;
    case 'd': text_integer(out, va_arg(args->list, int)); break;
    case 'u': text_unsigned(out, va_arg(args->list, unsigned)); break;
    case 's': in->string(out, va_arg(args->list, const char *)); break;
    case 'f':
        if (!in->real) unknown_word(format);
        in->real(out, va_arg(args->list, double));
        break;
    case 'v':
        if (!in->value) unknown_word(format);
        in->value(out, va_arg(args->list, orfa_value));
        break;
    default: unknown_word(format);
    }
    return at + 1;
}

static void format_plain(text *out, const char *format, arguments *args, const language *in) {
    for (const char *at = format; *at;) {
        if (*at == '%') at = word(out, at + 1, args, in, format);
        else text_byte(out, *at++);
    }
}

/* ---- URLs ---- */

/* Ends the run if the text added from `start` on can't be a part of a path: an empty segment, `.` or `..` would
 * lead to another path. */
static void check_part(const text *out, uint32_t start) {
    uint32_t len = out->len - start;
    bool in_path = start && !memchr(out->data, '?', start);
    if (in_path && len <= 2 && !memcmp(out->data + start, "..", len))
        orfa_fail("'%.*s' can't be used in the path after %.*s", (int)len, out->data + start, (int)start, out->data);
}

static void url_string(text *out, const char *string) {
    uint32_t start = out->len;
    if (!string) orfa_fail("NULL can't be used in a URL, after %.*s", (int)start, out->data ? out->data : "");
    text_percent_encoded(out, string, strlen(string));
    check_part(out, start);
}

static void url_scalar(text *out, orfa_value value) {
    uint32_t start = out->len;
    yyjson_val *scalar = raw(value);
    if (yyjson_is_str(scalar) || is_big(scalar)) {
        text_percent_encoded(out, unsafe_yyjson_get_str(scalar), unsafe_yyjson_get_len(scalar));
    } else if (yyjson_is_num(scalar) || yyjson_is_bool(scalar)) {
        text_json(out, value);
    } else {
        const char *kind = !value ? "no value" : yyjson_is_null(scalar) ? "null" : "an object or a nested array";
        orfa_fail("%%v is %s, which can't be used in a URL, after %.*s", kind, (int)start, out->data ? out->data : "");
    }
    check_part(out, start);
}

static void url_value(text *out, orfa_value value) {
    if (!yyjson_is_arr(json(value))) {
        url_scalar(out, value);
        return;
    }
    uint32_t start = out->len;
    bool first = true;
    for orfa_each(item, value) {
        if (!first) text_byte(out, ',');
        first = false;
        url_scalar(out, item);
    }
    check_part(out, start);
}

/* Rejects empty lists: a service may take an empty list to mean everything, and change all of it. */
static void url_value_of_change(text *out, orfa_value value) {
    uint32_t start = out->len;
    url_value(out, value);
    if (out->len == start && yyjson_is_arr(json(value)))
        orfa_fail("%%v is an empty list, which a call that changes something can't have, after %.*s", (int)start,
                  out->data ? out->data : "");
}

void format_url(text *out, const char *format, arguments *args, bool changes) {
    static const language read = {url_string, url_value, write_double};
    static const language change = {url_string, url_value_of_change, write_double};
    format_plain(out, format, args, changes ? &change : &read);
}

/* ---- Pointers ---- */

static void pointer_string(text *out, const char *string) {
    for (; string && *string; string++) {
        if (*string == '~') text_string(out, "~0");
        else if (*string == '/') text_string(out, "~1");
        else text_byte(out, *string);
    }
}

void format_pointer(text *out, const char *format, arguments *args) {
    static const language pointer = {pointer_string, NULL, NULL};
    format_plain(out, format, args, &pointer);
}

/* ---- Templates ---- */

static void start_item(writer *to) {
    if (to->comma) {
        char last = to->out->len ? to->out->data[to->out->len - 1] : '[';
        if (last != '{' && last != '[') text_byte(to->out, ',');
    }
    to->comma = false;
}

static bool is_name(char byte) { return isalnum((unsigned char)byte) || byte == '_' || byte == '$'; }

/* Writes a bare name, as a key or a text. true, false and null are literals unless they are keys. */
static const char *bare_name(writer *to, const char *at) {
    const char *end = at;
    while (is_name(*end) || *end == '-') end++;
    uint32_t len = end - at;
    bool word = (len == 4 && (!memcmp(at, "true", 4) || !memcmp(at, "null", 4))) ||
                (len == 5 && !memcmp(at, "false", 5));
    bool bare = word && *end != ':';
    if (!bare) text_byte(to->out, '"');
    text_add(to->out, at, len);
    if (!bare) text_byte(to->out, '"');
    return end;
}

/* Writes text in either kind of quotes. The text between them is JSON already. */
static const char *quoted(writer *to, const char *at, const char *format) {
    const char *end = at + 1;
    while (*end && *end != *at) end += *end == '\\' && end[1] ? 2 : 1;
    if (!*end) orfa_fail("a quote is not closed in \"%s\"", format);
    text_byte(to->out, '"');
    text_add(to->out, at + 1, end - at - 1);
    text_byte(to->out, '"');
    return end + 1;
}

/* Writes the members of an object, without its braces. */
static const char *spread(writer *to, const char *at, arguments *args, const char *format) {
    if (strncmp(at, "...%v", 5)) orfa_fail("only %%v may follow ... in \"%s\"", format);
    orfa_value value = va_arg(args->list, orfa_value);
    if (!is_object(value) || !orfa_len(value)) return at + 5;
    start_item(to);
    uint32_t start = to->out->len;
    text_json(to->out, value);
    to->out->len--;
    memmove(to->out->data + start, to->out->data + start + 1, --to->out->len - start);
    return at + 5;
}

static void nested(text *out, orfa_out value) {
    if (!value) {
        text_add(out, "null", 4);
        return;
    }
    text_add(out, value->data, value->len);
    text_byte(out, value->close);
}

static const char *template_word(writer *to, const char *at, arguments *args, const char *format) {
    static const language json_text = {text_json_string, text_json, text_json_double};
    start_item(to);
    if (*at == 'b') text_string(to->out, va_arg(args->list, int) ? "true" : "false");
    else if (*at == 'o') nested(to->out, va_arg(args->list, orfa_out));
    else return word(to->out, at, args, &json_text, format);
    return at + 1;
}

static const char *closing(writer *to, const char *at, const char *format) {
    if (!to->depth--) orfa_fail("brackets don't match in \"%s\"", format);
    to->comma = false;
    text_byte(to->out, *at);
    return at + 1;
}

/* Writes one token and returns the position after it. */
static const char *token(writer *to, const char *at, arguments *args, const char *format) {
    switch (*at) {
    case ' ': case '\n': case '\t': return at + 1;
    case ',': to->comma = true; return at + 1;
    case '%': return template_word(to, at + 1, args, format);
    case '.': return spread(to, at, args, format);
    case '}': case ']': return closing(to, at, format);
    case ':': text_byte(to->out, ':'); return at + 1;
    default: break;
    }
    start_item(to);
    if (*at == '"' || *at == '\'') return quoted(to, at, format);
    if (isdigit((unsigned char)*at) || *at == '-') {
        do text_byte(to->out, *at++);
        while (is_name(*at) || *at == '.' || *at == '-' || *at == '+');
        return at;
    }
    if (is_name(*at)) return bare_name(to, at);
    if (*at != '{' && *at != '[') orfa_fail("'%c' has no meaning in \"%s\"", *at, format);
    to->depth++;
    text_byte(to->out, *at);
    return at + 1;
}

void format_template(text *out, const char *format, arguments *args) {
    writer to = {out, 0, true};
    for (const char *at = format; *at;) at = token(&to, at, args, format);
    if (to.depth) orfa_fail("brackets don't match in \"%s\"", format);
}
