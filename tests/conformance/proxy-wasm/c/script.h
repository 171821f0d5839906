/* The script that a module runs: callbacks.c says when, steps.c what. The language is in README.md, a folder up. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* What a context remembers while it runs its script. */
typedef struct run {
    uint32_t id;
    const char *script; /* lines of `section: step; step`, ended by a zero */
    uint32_t action;
    bool refused;
    uint32_t cas, queue, call, entered;
} run;

/* Logs `on ` and the text, then runs the section. */
void enter(run *, const char *section, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a callback that decides whether the stream goes on; runs `section/end` or `section/more` too. */
uint32_t pass(run *, const char *section, bool end, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Runs one step; its result, or the empty text. */
const char *step(run *, const char *words);

/* The name of an http call's number, as the script gave it. */
const char *call_name(uint32_t call);
/* A buffer of the host as text, until the next step; null where there is none. */
const char *buffer(uint32_t type);
