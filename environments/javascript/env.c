//! The JavaScript environment: QuickJS-ng, a small library and two entries, `orfa_javascript_load` and `_run`.
//!
//! Everything before the first line of a program happens in `start`, a constructor. The build runs it once and stores
//! the memory as a snapshot, from which every run begins. So `start` may not call the host, and may not fix anything
//! that has to differ between runs.
//!
//! A run ends with `done` or `fail` and frees little: all of its memory is discarded soon.
#include "host.h"

#include <stdio.h>

/* The part of the 256 KiB stack that QuickJS may use; the rest is for C functions that do not check the stack. */
static const size_t STACK_BYTES = 200 * 1024;
/* Heap size of the first garbage collection. Short runs never reach it. */
static const size_t COLLECT_BYTES = 3 * 1024 * 1024;
/* Reserved so that a run that exhausted its memory can still report it. */
static const size_t RESERVE_BYTES = 32 * 1024;
/* The maximum size of QuickJS's arenas for small objects, the bytes that an arena may be shorter, and the number of those
   in pages of their own. */
enum { ARENA_BYTES = 4096, ARENA_SLACK = 512, ARENAS = 56 };
/* Free blocks of at least this size are not filled before the snapshot. */
static const size_t LARGEST_GAP = 64 * 1024;

static const char PRELUDE[] = {
#embed "prelude.js"
    , 0};

JSValue hooks[HOOK_COUNT];
bool running;
unsigned memory_failures;

static JSRuntime *runtime;
static JSContext *context;
static void *reserve;

/* ---- memory ---- */

static void *checked(void *memory) {
    if (!memory) {
        memory_failures++;
        free(reserve);
        reserve = NULL;
    }
    return memory;
}

size_t malloc_usable_size(void *memory);                            /* in wasi-libc, but not in its headers */

/* The arenas that QuickJS fills with small objects, each of one page: of an arena across two pages a run would write both,
   the head and an object. What the start needs has room here; further arenas come from `malloc`. */
static char arenas[ARENAS][ARENA_BYTES] __attribute__((aligned(ARENA_BYTES)));
static size_t arenas_used;
static void *arenas_free;                                            /* a list, linked in their first bytes */

static bool is_arena(const void *memory) { return (uintptr_t)memory - (uintptr_t)arenas < sizeof arenas; }

static void *env_malloc(void *opaque, size_t size) {
    if (size <= ARENA_BYTES - ARENA_SLACK || size > ARENA_BYTES || (!arenas_free && arenas_used == ARENAS))
        return checked(malloc(size));
    void *arena = arenas_free;
    if (!arena)
        return arenas[arenas_used++];
    arenas_free = *(void **)arena;
    return arena;
}
static void *env_calloc(void *opaque, size_t count, size_t size) { return checked(calloc(count, size)); }
static void env_free(void *opaque, void *memory) {
    if (!is_arena(memory))
        return free(memory);
    *(void **)memory = arenas_free;
    arenas_free = memory;
}
static void *env_realloc(void *opaque, void *memory, size_t size) {
    if (is_arena(memory)) {                                          /* no arena, but as large as one */
        void *copy = size ? env_malloc(opaque, size) : NULL;
        if (copy)
            memcpy(copy, memory, size < ARENA_BYTES ? size : ARENA_BYTES);
        if (copy || !size)
            env_free(opaque, memory);
        return copy;
    }
    void *moved = realloc(memory, size);
    return size ? checked(moved) : moved;
}
static size_t env_size(const void *memory) {
    return is_arena(memory) ? ARENA_BYTES : malloc_usable_size((void *)memory);
}

static const JSMallocFunctions ALLOCATOR = {env_calloc, env_malloc, env_free, env_realloc, env_size};

/* Allocates room for text from the host and a NUL, which the parsers of QuickJS need. */
EXPORT(orfa_alloc) void *orfa_alloc(uint32_t len) {
    char *memory = malloc((size_t)len + 1);
    if (memory)
        memory[len] = 0;
    return memory;
}

/* ---- failing ---- */

static _Noreturn void fail(int kind, const char *words) { host_fail(kind, words, strlen(words), 0, 0); }

/* A text written by a program. It may contain U+0000, and a NUL follows it. */
typedef struct { const char *data; size_t len; } Words;

typedef struct { uint32_t line, column; } Position;

static const char PROGRAM[] = "program:";
enum { PROGRAM_LEN = sizeof PROGRAM - 1 };

/* Returns the position in the first frame of the program itself: `program:LINE:COLUMN`. */
static Position position_of(Words stack) {
    const char *end = stack.data + stack.len;
    for (const char *at = stack.data; (at = memmem(at, end - at, PROGRAM, PROGRAM_LEN)); at++) {
        char *behind;
        unsigned long line = strtoul(at + PROGRAM_LEN, &behind, 10);
        if (behind > at + PROGRAM_LEN && *behind == ':')
            return (Position){line, strtoul(behind + 1, NULL, 10)};
    }
    return (Position){0, 0};
}

/* Adds the program's own frames of a stack, at most five. */
static void add_frames(Text *text, Words stack) {
    const char *end = stack.data + stack.len;
    for (int frames = 0; stack.data < end && frames < 5;) {
        const char *line = memchr(stack.data, '\n', end - stack.data);
        size_t len = (line ? line : end) - stack.data;
        if (memmem(stack.data, len, PROGRAM, PROGRAM_LEN)) {
            text_puts(text, "\n");
            text_add(text, stack.data, len);
            frames++;
        }
        stack.data += len + 1;
    }
}

/* Returns the text of a thrown value: name and message of an error, or else JSON. */
static Words words_of(JSContext *ctx, JSValueConst thrown) {
    static const char NO_TEXT[] = "a value that can't be written as text";
    JSValue json = JS_UNDEFINED;
    if (JS_IsObject(thrown) && !JS_IsError(thrown))
        json = JS_JSONStringify(ctx, thrown, JS_UNDEFINED, JS_UNDEFINED);
    Words words = {NULL, 0};
    if (!JS_IsException(json))
        words.data = string_to_utf8(ctx, &words.len, JS_IsString(json) ? json : thrown);
    if (!words.data)
        JS_FreeValue(ctx, JS_GetException(ctx));
    return words.data ? words : (Words){NO_TEXT, sizeof NO_TEXT - 1};
}

/* Returns the stack of an error by the original getter of Error.prototype, which a program may replace; "" if none. */
static Words stack_of(JSContext *ctx, JSValueConst exception) {
    JSValue stack = JS_IsError(exception) ? JS_Call(ctx, hooks[HOOK_STACK], exception, 0, NULL) : JS_UNDEFINED;
    Words words = {NULL, 0};
    if (JS_IsString(stack))
        words.data = string_to_utf8(ctx, &words.len, stack);
    if (!words.data && JS_HasException(ctx))
        JS_FreeValue(ctx, JS_GetException(ctx));
    return words.data ? words : (Words){"", 0};
}

/* Ends the run with a text, or with `otherwise` if there was no memory for the text. */
static _Noreturn void fail_text(int kind, const Text *text, const char *otherwise) {
    if (!text->data)
        fail(kind, otherwise);
    host_fail(kind, text->data, text->len, 0, 0);
}

/* Ends the run with an uncaught exception. */
static _Noreturn void fail_with(JSContext *ctx, int kind, JSValueConst exception) {
    Words words = words_of(ctx, exception);
    if (memory_failures && strstr(words.data, "out of memory"))
        kind = MEMORY;
    Words stack = stack_of(ctx, exception);
    Position position = position_of(stack);
    Text text = {0};
    if (!JS_IsError(exception))
        text_puts(&text, "thrown, and not an Error: ");
    text_add(&text, words.data, words.len);
    add_frames(&text, stack);
    calls_finish(ctx);
    host_fail(kind, text.data ? text.data : words.data, text.data ? text.len : words.len, position.line, position.column);
}

static _Noreturn void fail_uncaught(JSContext *ctx, int kind) { fail_with(ctx, kind, JS_GetException(ctx)); }

/* ---- loading ---- */

static const char *program_source;

/* Returns the position of `import ... from 'name'` for the error: the loader doesn't get it. */
static Position position_of_import(const char *source, const char *name) {
    size_t len = strlen(name);
    Position position = {1, 1};
    for (const char *at = source; *at; at++) {
        bool quoted = (*at == '\'' || *at == '"') && strncmp(at + 1, name, len) == 0 && at[len + 1] == *at;
        const char *before = at;
        while (quoted && before > source && strchr(" \t\r\n", before[-1]))
            before--;
        if (quoted && ((before - source >= 4 && !memcmp(before - 4, "from", 4)) || (before - source >= 6 && !memcmp(before - 6, "import", 6))))
            return position;
        position = *at == '\n' ? (Position){position.line + 1, 1} : (Position){position.line, position.column + 1};
    }
    return (Position){0, 0};
}

static bool loading;

static JSModuleDef *load_other(JSContext *ctx, const char *name, void *opaque) {
    static const char *const WORDS = "a program is one file: it can't import '%s'";
    if (loading) {
        char words[256];
        Position position = position_of_import(program_source, name);
        int len = snprintf(words, sizeof words, WORDS, name);
        host_fail(SYNTAX, words, len < (int)sizeof words ? len : (int)sizeof words - 1, position.line, position.column);
    }
    JS_ThrowTypeError(ctx, WORDS, name);
    return NULL;
}

/* Module names are not resolved. */
static char *same_name(JSContext *ctx, const char *base, const char *name, void *opaque) { return js_strdup(ctx, name); }

static void run_jobs(JSContext *ctx) {
    JSContext *job;
    int ran;
    while ((ran = JS_ExecutePendingJob(runtime, &job)) > 0) {}
    if (ran < 0)
        fail_uncaught(ctx, THREW);
}

/* Runs jobs and waits for calls until the promise is settled. */
static void settle(JSContext *ctx, JSValueConst promise) {
    for (;;) {
        run_jobs(ctx);
        if (JS_PromiseState(ctx, promise) != JS_PROMISE_PENDING)
            return;
        if (!calls_wait(ctx))
            fail(STALLED, "the program waits for a promise that can never settle: no call is under way");
    }
}

/* Returns the value that a promise is settled with, or the value itself if it isn't a promise. */
static JSValue awaited(JSContext *ctx, JSValue value) {
    if (!JS_IsObject(value))
        return value;
    if (!JS_IsPromise(value)) {                                      /* it may still have a `then` */
        JSValue functions[2];
        JSValue promise = JS_NewPromiseCapability(ctx, functions);
        if (JS_IsException(promise) || JS_IsException(JS_Call(ctx, functions[0], JS_UNDEFINED, 1, (JSValueConst *)&value)))
            fail_uncaught(ctx, THREW);
        value = promise;
    }
    settle(ctx, value);
    JSValue result = JS_PromiseResult(ctx, value);
    if (JS_PromiseState(ctx, value) == JS_PROMISE_REJECTED)
        fail_with(ctx, THREW, result);
    return result;
}

/* Runs what the program has started until no call that may change something is in flight. Ends the run with the error of
   such a call that the program does not handle: an answer would hide that a write was lost. */
static void settle_changes(JSContext *ctx) {
    do {
        run_jobs(ctx);
        calls_drop_reads(ctx);
    } while (calls_wait(ctx));
    JSValue failure = calls_failure(ctx);
    if (!JS_IsUndefined(failure))
        fail_with(ctx, THREW, failure);
}

/* Evaluates the program and returns the namespace of its exports. */
static JSValue load(JSContext *ctx, const char *source, size_t len) {
    program_source = source;
    loading = true;
    JSValue module = JS_Eval(ctx, source, len, "program", JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    loading = false;
    if (JS_IsException(module))
        fail_uncaught(ctx, SYNTAX);
    JSModuleDef *definition = JS_VALUE_GET_PTR(module);
    JSValue evaluated = JS_EvalFunction(ctx, module);
    if (JS_IsException(evaluated))
        fail_uncaught(ctx, THREW);
    awaited(ctx, evaluated);
    return JS_GetModuleNamespace(ctx, definition);
}

/* ---- input ---- */

static JSValue parse_input(JSContext *ctx, const char *input, size_t len) {
    if (len == 0)
        return JS_NewObject(ctx);
    JSValue value = JS_ParseJSON(ctx, input, len, "input");
    if (!JS_IsException(value))
        return value;
    Words words = words_of(ctx, JS_GetException(ctx));
    Text text = {0};
    text_puts(&text, "the input is not JSON: ");
    text_add(&text, words.data, words.len);
    if (memory_failures || !text.data)
        fail(MEMORY, "out of memory while the input was read");
    fail_text(REFUSED, &text, "the input is not JSON");
}

static bool is_word(JSContext *ctx, JSValueConst value, const char *word) {
    size_t len;
    const char *text = JS_IsString(value) ? JS_ToCStringLen(ctx, &len, value) : NULL;
    bool same = text && len == strlen(word) && !memcmp(text, word, len);
    JS_FreeCString(ctx, text);
    return same;
}

/* Converts the input according to `export const input = 'json' | 'text' | 'bytes'`. */
static JSValue read_input(JSContext *ctx, JSValueConst exports, const char *input, size_t len) {
    JSValue mode = JS_GetPropertyStr(ctx, exports, "input");
    if (JS_IsUndefined(mode) || is_word(ctx, mode, "json"))
        return parse_input(ctx, input, len);
    if (is_word(ctx, mode, "text"))
        return string_from_utf8(ctx, input, len);
    if (is_word(ctx, mode, "bytes"))
        return JS_NewUint8ArrayCopy(ctx, (const uint8_t *)input, len);
    fail(BAD_ANSWER, "export const input has to be 'json', 'text' or 'bytes'");
}

/* ---- the answer ---- */

static void send_type(const char *type) { host_header("content-type", 12, type, strlen(type)); }

static void send_text(JSContext *ctx, JSValueConst value, const char *type) {
    size_t len;
    const char *text = string_to_utf8(ctx, &len, value);
    if (!text)
        fail_uncaught(ctx, THREW);
    if (type)
        send_type(type);
    settle_changes(ctx);
    host_done(text, len);
}

/* `data` must be out of the program's reach, which may go on to run. */
static void send_bytes(JSContext *ctx, const uint8_t *data, size_t len, const char *type) {
    if (type)
        send_type(type);
    settle_changes(ctx);
    host_done(data, len);
}

static void send_json(JSContext *ctx, JSValueConst value) {
    Text written = {0};
    bool has_form = json_write(ctx, value, true, &written);
    if (has_form && written.data)
        return send_bytes(ctx, (const uint8_t *)written.data, written.len, "application/json");
    if (has_form)
        JS_ThrowOutOfMemory(ctx);
    if (!JS_HasException(ctx))
        fail(BAD_ANSWER, "the program returned something that has no JSON form");
    JSValue exception = JS_GetException(ctx);                        /* from a toJSON, a cycle, a BigInt or a Map */
    fail_with(ctx, position_of(stack_of(ctx, exception)).line ? THREW : BAD_ANSWER, exception);
}

/* Sends one header of a Response. An invalid header is left out if it came from an upstream's response, and an error
   if the program wrote it. (The host ends the run at a header that is not allowed.) */
static void send_header(JSContext *ctx, JSValueConst name, JSValueConst value, bool lenient) {
    size_t name_len = 0, value_len = 0;
    const char *name_text = string_to_utf8(ctx, &name_len, name), *value_text = string_to_utf8(ctx, &value_len, value);
    if (!name_text || !value_text)
        fail_uncaught(ctx, THREW);
    int32_t code = host_header(name_text, name_len, value_text, value_len);
    if (code >= 0 || lenient)
        return;
    Text text = {0};
    text_puts(&text, "not a header: '");
    text_add(&text, name_text, name_len);
    text_puts(&text, "'");
    fail_text(BAD_ANSWER, &text, "not a header");
}

/* Sends a Response, which the prelude unpacked: [status, lenient, body, name, value, name, value, ...]. */
static void send_response(JSContext *ctx, JSValueConst parts) {
    int64_t len = 0;
    int32_t status = 0;
    JS_GetLength(ctx, parts, &len);
    JS_ToInt32(ctx, &status, JS_GetPropertyUint32(ctx, parts, 0));
    bool lenient = JS_ToBool(ctx, JS_GetPropertyUint32(ctx, parts, 1));
    JSValue body = JS_GetPropertyUint32(ctx, parts, 2);
    if (host_status(status) < 0)
        fail(BAD_ANSWER, "a Response's status has to be 200 to 599");
    for (int64_t i = 3; i + 1 < len; i += 2)
        send_header(ctx, JS_GetPropertyInt64(ctx, parts, i), JS_GetPropertyInt64(ctx, parts, i + 1), lenient);
    const uint8_t *data;
    size_t size;
    if (JS_IsString(body))
        send_text(ctx, body, NULL);
    else if (bytes_of(ctx, body, &data, &size))
        send_bytes(ctx, data, size, NULL);
    else
        send_bytes(ctx, NULL, 0, NULL);
}

static void send_object(JSContext *ctx, JSValueConst value) {
    const uint8_t *data;
    size_t len;
    if (JS_IsFunction(ctx, value))
        fail(BAD_ANSWER, "the program returned a function");
    settle_changes(ctx);                                             /* the program may still write to its bytes */
    bool bytes = bytes_of(ctx, value, &data, &len);
    if (bytes && !data)
        fail(BAD_ANSWER, DETACHED);
    if (bytes)
        return send_bytes(ctx, data, len, "application/octet-stream");
    JSValue parts = JS_Call(ctx, hooks[HOOK_UNPACK], JS_UNDEFINED, 1, &value);
    if (JS_IsException(parts))
        fail_uncaught(ctx, BAD_ANSWER);
    if (JS_IsUndefined(parts))
        return send_json(ctx, value);
    send_response(ctx, parts);
}

/* Sends the answer by rule 13 of the S language, which also applies here. */
static void answer(JSContext *ctx, JSValueConst value) {
    if (JS_IsUndefined(value) || JS_IsNull(value)) {
        host_status(204);
        return send_bytes(ctx, NULL, 0, NULL);
    }
    if (JS_IsString(value))
        return send_text(ctx, value, "text/plain; charset=utf-8");
    if (JS_IsSymbol(value) || JS_IsBigInt(value))
        fail(BAD_ANSWER, JS_IsSymbol(value) ? "the program returned a symbol" : "the program returned a BigInt: JSON has none, use Number() or String()");
    if (JS_IsObject(value))
        return send_object(ctx, value);
    send_json(ctx, value);
}

/* ---- the entry ---- */

static JSValue exports, program, services_object;

/* Loads a program. Most instances then run it once; an instance that a client keeps runs it again. */
EXPORT(orfa_javascript_load)
void orfa_javascript_load(char *source, uint32_t source_len, char *services, uint32_t services_len) {
    JSContext *ctx = context;
    running = true;
    JS_UpdateStackTop(runtime);
    exports = load(ctx, source, source_len);
    program = JS_IsException(exports) ? JS_UNDEFINED : JS_GetPropertyStr(ctx, exports, "default");
    if (!JS_IsFunction(ctx, program))
        fail(BAD_ANSWER, "the program exports no function: it needs `export default async function (input, services) { ... }`");
    services_object = services_new(ctx, services, services_len);
    if (JS_IsException(services_object))
        fail_uncaught(ctx, THREW);
}

EXPORT(orfa_javascript_run)
void orfa_javascript_run(char *input, uint32_t input_len) {
    JSContext *ctx = context;
    JS_UpdateStackTop(runtime);
    JSValue arguments[] = {read_input(ctx, exports, input, input_len), JS_DupValue(ctx, services_object)};
    if (JS_IsException(arguments[0]))
        fail_uncaught(ctx, THREW);
    JSValue result = JS_Call(ctx, program, JS_UNDEFINED, 2, (JSValueConst *)arguments);
    if (JS_IsException(result))
        fail_uncaught(ctx, THREW);
    JSValue value = awaited(ctx, result);
    answer(ctx, value);
    /* Values that would accumulate over several runs. The rest is small, and is freed with the instance. */
    JS_FreeValue(ctx, value);
    JS_FreeValue(ctx, arguments[0]);
    JS_FreeValue(ctx, arguments[1]);
    free(input);
}

/* Evaluates the prelude and stores its hooks. */
static bool start_prelude(JSContext *ctx) {
    JSValue native = JS_NewObject(ctx);
    if (library_init(ctx, native) < 0 || calls_init(ctx) < 0 || lazy_init(ctx) < 0 || write_init(ctx) < 0)
        return false;
    JSValue prelude = JS_Eval(ctx, PRELUDE, sizeof PRELUDE - 1, "orfa", JS_EVAL_TYPE_GLOBAL);
    JSValue made = JS_Call(ctx, prelude, JS_UNDEFINED, 1, (JSValueConst *)&native);
    for (int i = 0; i < HOOK_COUNT && !JS_IsException(made); i++)
        hooks[i] = JS_GetPropertyUint32(ctx, made, i);
    return !JS_IsException(made);
}

/* Uses up the free blocks between the objects of the start, so that the objects of a run lie together above them: each
   page that a run writes is copied back from the snapshot after it. */
static void fill_gaps(void) {
    void *above = malloc(LARGEST_GAP), *block;
    for (size_t size = LARGEST_GAP; size >= sizeof(void *); size /= 2) {
        do
            block = malloc(size);
        while (block && (uintptr_t)block < (uintptr_t)above);
        free(block);
    }
    free(above);
}

/* Runs when the snapshot is taken. A trap here ends the build. */
__attribute__((constructor)) static void start(void) {
    runtime = JS_NewRuntime2(&ALLOCATOR, NULL);
    JS_SetMaxStackSize(runtime, STACK_BYTES);
    JS_SetModuleLoaderFunc(runtime, same_name, load_other, NULL);
    context = JS_NewContext(runtime);
    if (!context || !start_prelude(context))
        __builtin_trap();
    JS_RunGC(runtime);
    JS_SetGCThreshold(runtime, COLLECT_BYTES);
    fill_gaps();
    reserve = malloc(RESERVE_BYTES);
}
