/* The answer, the console, and failing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "environment.h"

static bool typed;

/* ---- Memory ---- */

_Noreturn static void fail(int kind, const char *reason, uint32_t len) {
    orfa_host_fail(kind, reason, len, 0, 0);
    __builtin_trap();
}

_Noreturn void out_of_memory(void) {
    static const char reason[] = "there is no memory left";
    fail(ORFA_MEMORY, reason, sizeof reason - 1);
}

void *orfa_alloc(uint32_t len) {
    void *memory = malloc(len ? len : 1);
    if (!memory) out_of_memory();
    return memory;
}

/* ---- The answer ---- */

static orfa_out new_out(char open, char close) {
    orfa_out out = orfa_alloc(sizeof *out);
    *out = (text){.close = close};
    text_byte(out, open);
    return out;
}

orfa_out orfa_array(void) { return new_out('[', ']'); }

orfa_out orfa_object(void) { return new_out('{', '}'); }

void orfa_add(orfa_out out, const char *members, ...) {
    arguments args;
    va_start(args.list, members);
    format_template(out, members, &args);
    va_end(args.list);
}

/* The instance may run again, so no state of this run's answer may remain. */
static void done(const void *data, uint32_t len) {
    typed = false;
    orfa_host_done(data, len);
}

static void done_as(const char *type, const void *data, uint32_t len) {
    if (!typed) orfa_header("content-type", type);
    done(data, len);
}

void orfa_done_json(orfa_out out) {
    text_byte(out, out->close);
    done_as("application/json", out->data, out->len);
}

void orfa_done_as(const char *json, ...) {
    text out = {0};
    arguments args;
    va_start(args.list, json);
    format_template(&out, json, &args);
    va_end(args.list);
    done_as("application/json", out.data, out.len);
}

void orfa_done_text(const char *string) { done_as("text/plain; charset=utf-8", string, strlen(string)); }

void orfa_done(const void *data, uint32_t len) { done(data, len); }

int32_t orfa_status(int32_t code) { return orfa_host_status(code); }

int orfa_header(const char *name, const char *value) {
    if (!strcasecmp(name, "content-type")) typed = true;
    return orfa_host_header(name, strlen(name), value, strlen(value));
}

/* ---- The console, and failing ---- */

static void print(text *out, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    int len = vsnprintf(NULL, 0, format, list);
    out->data = orfa_alloc(len + 1);
    out->len = len;
    vsnprintf(out->data, len + 1, format, again);
    va_end(again);
}

void orfa_log(const char *format, ...) {
    text line;
    va_list list;
    va_start(list, format);
    print(&line, format, list);
    va_end(list);
    orfa_host_log(line.data, line.len);
    free(line.data);
}

_Noreturn void orfa_fail(const char *format, ...) {
    text reason;
    va_list list;
    va_start(list, format);
    print(&reason, format, list);
    fail(ORFA_REFUSED, reason.data, reason.len);
}

/* Called by assert(). */
_Noreturn void __assert_fail(const char *condition, const char *file, int line, const char *function) {
    orfa_fail("%s:%d: %s: assertion failed: %s", file, line, function, condition);
}
