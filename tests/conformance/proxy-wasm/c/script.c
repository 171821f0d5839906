/* Parses scripts and runs their sections. */
#include "abi.h"
#include "script.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *text) { proxy_log(2, text, strlen(text)); }

/* Returns a copy of the text from `from` to `to` without leading and trailing spaces. */
static char *trimmed(const char *from, const char *to) {
    while (from < to && *from == ' ') from++;
    while (to > from && to[-1] == ' ') to--;
    return strndup(from, to - from);
}

/* The number of times that each section of each context was entered, for `at`. */
static struct entry { uint32_t id; char section[40]; uint32_t times; } entries[4096];
static uint32_t entered;

static uint32_t times(uint32_t id, const char *section) {
    for (uint32_t n = 0; n < entered; n++)
        if (entries[n].id == id && strcmp(entries[n].section, section) == 0) return ++entries[n].times;
    struct entry *entry = &entries[entered++ % 4096];
    entry->id = id;
    strncpy(entry->section, section, sizeof entry->section - 1);
    return entry->times = 1;
}

/* Whether a header of the request satisfies `when NAME VALUE`. */
static bool holds(const char *condition) {
    size name = strcspn(condition, " "), length;
    const char *wanted = condition + name + 1;
    char *value;
    return proxy_get_header_map_value(0, condition, name, &value, &length) == OK && length == strlen(wanted) &&
           memcmp(value, wanted, length) == 0;
}

/* Runs the steps of one line. Returns false if an `at` or `when` ends the section. */
static bool steps(run *run, const char *line, const char *end, uint32_t time) {
    while (line < end) {
        const char *stop = memchr(line, ';', end - line);
        if (!stop) stop = end;
        char *words = trimmed(line, stop);
        if (strncmp(words, "at ", 3) == 0 && (uint32_t)atoi(words + 3) != time) return false;
        if (strncmp(words, "when ", 5) == 0 && !holds(words + 5)) return false;
        const char *result = step(run, words);
        if (*result) {
            char *text;
            asprintf(&text, "%s = %s", words, result);
            say(text);
            free(text);
        }
        free(words);
        line = stop + 1;
    }
    return true;
}

static void section(run *run, const char *name) {
    if (!run->script) return;
    uint32_t time = times(run->id, name);
    for (const char *line = run->script; *line;) {
        const char *end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        const char *colon = memchr(line, ':', end - line);
        if (colon && (size_t)(colon - line) == strlen(name) && strncmp(line, name, colon - line) == 0)
            if (!steps(run, colon + 1, end, time)) return;
        line = *end ? end + 1 : end;
    }
}

static void on(const char *format, va_list values) {
    char text[512] = "on ";
    vsnprintf(text + 3, sizeof text - 3, format, values);
    say(text);
}

void enter(run *run, const char *name, const char *format, ...) {
    va_list values;
    va_start(values, format);
    on(format, values);
    va_end(values);
    section(run, name);
}

uint32_t pass(run *run, const char *name, bool end, const char *format, ...) {
    va_list values;
    va_start(values, format);
    on(format, values);
    va_end(values);
    run->action = CONTINUE;
    section(run, name);
    char both[64];
    snprintf(both, sizeof both, "%s/%s", name, end ? "end" : "more");
    section(run, both);
    return run->action;
}
