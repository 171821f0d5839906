/* Growable text. Doubling keeps the cost per byte constant; outgrown memory is freed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "environment.h"

static void reserve(text *out, uint32_t more) {
    if (more <= out->capacity - out->len) return;
    uint64_t wanted = (uint64_t)out->capacity * 2;
    if (wanted < (uint64_t)out->len + more) wanted = (uint64_t)out->len + more;
    if (wanted < 256) wanted = 256;
    if (wanted > INT32_MAX) out_of_memory();
    char *grown = realloc(out->data, wanted);
    if (!grown) out_of_memory();
    out->data = grown;
    out->capacity = wanted;
}

char *text_room(text *out, uint32_t len) {
    reserve(out, len);
    return out->data + out->len;
}

void text_byte(text *out, char byte) {
    reserve(out, 1);
    out->data[out->len++] = byte;
}

void text_add(text *out, const char *data, uint32_t len) {
    reserve(out, len);
    memcpy(out->data + out->len, data, len);
    out->len += len;
}

void text_string(text *out, const char *string) { text_add(out, string, strlen(string)); }

void text_unsigned(text *out, unsigned long long number) {
    char digits[20];
    char *at = digits + sizeof digits;
    do *--at = '0' + number % 10;
    while (number /= 10);
    text_add(out, at, digits + sizeof digits - at);
}

void text_integer(text *out, long long number) {
    if (number < 0) text_byte(out, '-');
    text_unsigned(out, number < 0 ? 0ULL - number : number);
}

static bool is_unreserved(unsigned char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '.' || byte == '_' || byte == '~';
}

void text_percent_encoded(text *out, const char *data, uint32_t len) {
    static const char hex[] = "0123456789ABCDEF";
    for (uint32_t i = 0; i < len; i++) {
        unsigned char byte = data[i];
        if (is_unreserved(byte)) {
            text_byte(out, byte);
        } else {
            text_byte(out, '%');
            text_byte(out, hex[byte >> 4]);
            text_byte(out, hex[byte & 15]);
        }
    }
}

/* Whether an object has lazy members. Only orfa_pick makes such objects. */
static bool holds_lazy(yyjson_val *object) {
    size_t i, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, i, max, key, value) {
        if (is_lazy(value)) return true;
    }
    return false;
}

static void members_json(text *out, yyjson_val *object) {
    size_t i, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, i, max, key, value) {
        text_byte(out, i ? ',' : '{');
        text_json(out, (orfa_value)key);
        text_byte(out, ':');
        text_json(out, (orfa_value)value);
    }
    text_byte(out, '}');
}

void text_json(text *out, orfa_value value) {
    if (!value) {
        text_add(out, "null", 4);
        return;
    }
    if (is_lazy(raw(value))) return lazy_text(out, raw(value));
    if (holds_lazy(raw(value))) return members_json(out, raw(value));
    size_t len;
    char *written = yyjson_val_write_opts(raw(value), 0, NULL, &len, NULL);
    if (!written) orfa_fail("a text to be written as JSON is not UTF-8");
    text_add(out, written, len);
    free(written);
}

void text_json_string(text *out, const char *string) {
    yyjson_val value;
    if (string) unsafe_yyjson_set_strn(&value, string, strlen(string));
    text_json(out, string ? (orfa_value)&value : NULL);
}

void text_json_double(text *out, double number) {
    yyjson_val value;
    unsafe_yyjson_set_real(&value, number);
    text_json(out, isfinite(number) ? (orfa_value)&value : NULL);
}

char *text_terminated(text *out) {
    text_byte(out, 0);
    out->len--;
    return out->data;
}
