/* The script that a module runs, by callbacks.c and steps.c. README.md in the parent folder describes the language. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* The state of a context while it runs its script. */
typedef struct run {
    uint32_t id;
    const char *script; /* lines of `section: step; step`, zero-terminated */
    uint32_t action;
    bool refused;
    uint32_t cas, queue, call, entered;
} run;

/* Logs `on ` and the text, then runs the section. */
void enter(run *, const char *section, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Like `enter`, for a callback that may pause the stream; also runs `section/end` or `section/more`. */
uint32_t pass(run *, const char *section, bool end, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Runs one step. Returns its result, or an empty text. */
const char *step(run *, const char *words);

/* Returns the script's name for an HTTP call. */
const char *call_name(uint32_t call);
/* Returns a buffer of the host as text, or null if it is missing or empty. */
const char *buffer(uint32_t type);
