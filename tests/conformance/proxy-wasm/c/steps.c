/* The steps of a script: each calls a host function and returns its status or its result as text.
 *
 * Steps shared with other modules come first; `raw ...` are calls that no SDK makes: unknown types, addresses outside
 * the memory, and calls at the wrong time. */
#include "abi.h"
#include "script.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if ABI == 10
#define WASI "wasi_unstable"
#else
#define WASI "wasi_snapshot_preview1"
#endif
#include "wasi.h"

#define MOST_WORDS 16

static const char *name_of(status status) {
    static const char *const names[] = { "OK", "NOT_FOUND", "BAD_ARGUMENT", "SERIALIZATION_FAILURE", "PARSE_FAILURE",
        "BAD_EXPRESSION", "INVALID_MEMORY_ACCESS", "EMPTY", "CAS_MISMATCH", "RESULT_MISMATCH", "INTERNAL_FAILURE",
        "BROKEN_CONNECTION", "UNIMPLEMENTED" };
    return status < sizeof names / sizeof *names ? names[status] : "no such status";
}

static char out[1 << 16];

/* Returns bytes as text, with \xNN for unprintable ones. */
static const char *quoted(const char *bytes, size length) {
    if (length == 0) return "(empty)";
    char *at = out;
    for (size n = 0; n < length && at < out + sizeof out - 8; n++)
        at += bytes[n] < ' ' || bytes[n] > '~' ? sprintf(at, "\\x%02x", (unsigned char)bytes[n]) : (*at = bytes[n], 1);
    *at = 0;
    return out;
}

static const char *value(status status, const char *bytes, size length) {
    return status == OK ? quoted(bytes, length) : name_of(status);
}

static const char *number(status status, long long number) {
    if (status != OK) return name_of(status);
    sprintf(out, "%lld", number);
    return out;
}

const char *buffer(uint32_t type) {
    char *bytes;
    size length;
    if (proxy_get_buffer_bytes(type, 0, 1 << 20, &bytes, &length) != OK || length == 0) return NULL;
    return strndup(bytes, length);
}

/* Calls in flight, with their context and their name. */
static struct { uint32_t call, caller; char name[32]; } calls[1024];
static uint32_t called;

static void remember(uint32_t call, uint32_t caller, const char *name) {
    uint32_t n = called++ % 1024;
    calls[n].call = call;
    calls[n].caller = caller;
    strncpy(calls[n].name, name, sizeof calls[n].name - 1);
}
static int find(uint32_t call) {
    for (int n = 0; n < 1024; n++)
        if (calls[n].call == call && calls[n].name[0]) return n;
    return 0;
}
const char *call_name(uint32_t call) { return calls[find(call)].name; }
uint32_t caller_of(uint32_t call) { return calls[find(call)].caller; }

static struct { uint32_t metric; char name[64]; } metrics[256];
static uint32_t defined;

static uint32_t metric_of(const char *name) {
    for (uint32_t n = 0; n < defined; n++)
        if (strcmp(metrics[n].name, name) == 0) return metrics[n].metric;
    return 0;
}

static int index_of(const char *const *names, const char *name) {
    for (int n = 0; names[n]; n++)
        if (strcmp(names[n], name) == 0) return n;
    return 99;
}
static const char *const MAPS[] = { "request", "request_trailers", "response", "response_trailers", "grpc_initial",
    "grpc_trailing", "call", "call_trailers", NULL };
static const char *const BUFFERS[] = { "request", "response", "downstream", "upstream", "call", "grpc", "vm", "plugin",
    "foreign", NULL };
static const char *const LEVELS[] = { "trace", "debug", "info", "warn", "error", "critical", NULL };
static const char *const KINDS[] = { "counter", "gauge", "histogram", NULL };

/* Encodes `a=1,b=2` as pairs of the ABI: their number, all lengths, then names and values, each zero-terminated. */
static size pairs_of(const char *text, char *to) {
    char *copy = strdup(text), *save;
    uint32_t count = 0, lengths[128];
    char flat[4096], *at = flat;
    for (char *pair = strtok_r(copy, ",", &save); pair; pair = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(pair, '=');
        if (!equals) continue;
        *equals = 0;
        for (int half = 0; half < 2; half++) {
            const char *word = half ? equals + 1 : pair;
            lengths[count * 2 + half] = strlen(word);
            at = stpcpy(at, word) + 1;
        }
        count++;
    }
    free(copy);
    memcpy(to, &count, 4);
    memcpy(to + 4, lengths, count * 8);
    memcpy(to + 4 + count * 8, flat, at - flat);
    return 4 + count * 8 + (at - flat);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static const char *listed(status status, const char *bytes, size length) {
    if (status != OK) return name_of(status);
    uint32_t count = 0;
    if (length >= 4) memcpy(&count, bytes, 4);
    char *pairs[128];
    const char *at = bytes + 4 + count * 8;
    for (uint32_t n = 0; n < count && n < 128; n++) {
        uint32_t lengths[2];
        memcpy(lengths, bytes + 4 + n * 8, 8);
        asprintf(&pairs[n], "%s=%s", at, at + lengths[0] + 1);
        at += lengths[0] + lengths[1] + 2;
    }
    qsort(pairs, count, sizeof *pairs, by_text);
    char text[8192] = "";
    for (uint32_t n = 0; n < count; n++) {
        if (n) strcat(text, ",");
        strcat(text, pairs[n]);
        free(pairs[n]);
    }
    return quoted(text, strlen(text));
}

static size path_of(const char *dotted, char *path) {
    size length = strlen(dotted);
    for (size n = 0; n < length; n++) path[n] = dotted[n] == '.' ? 0 : dotted[n];
    return length;
}

static status resume(const char *which) {
    bool request = strcmp(which, "request") == 0;
#if ABI == 10
    return request ? proxy_continue_request() : proxy_continue_response();
#else
    return proxy_continue_stream(request ? 0 : 1);
#endif
}

static const char *http_call(run *run, const char *const *words, const char *text) {
    char flat[512], headers[1024];
    snprintf(flat, sizeof flat, ":method=%s,:path=%s,:authority=called,x-call=%s", words[3], words[4], words[1]);
    size length = pairs_of(flat, headers);
    uint32_t call = 0;
    status status = proxy_http_call(words[2], strlen(words[2]), headers, length, text, strlen(text), NULL, 0,
                                    atoi(words[5]), &call);
    if (status == OK) remember(call, run->id, words[1]);
    return name_of(status);
}

/* The upstream of a gRPC call is Envoy's GrpcService as a protobuf: envoy_grpc (1) with cluster_name (1). For
 * `grpc_call_by_name` it is the plain name. */
static const char *grpc(run *run, const char *const *words, const char *text) {
    char upstream[128];
    size name = strlen(words[1]), length = name;
    bool plain = strstr(words[0], "by_name") != NULL;
    if (plain) memcpy(upstream, words[1], name);
    else length = snprintf(upstream, sizeof upstream, "\x0a%c\x0a%c%s", (char)(name + 2), (char)name, words[1]);
    char metadata[256];
    size metadata_length = pairs_of("x-called=grpc", metadata);
    uint32_t call = 0;
    status status;
    if (strcmp(words[0], "grpc_stream") == 0)
        status = proxy_grpc_stream(upstream, length, words[2], strlen(words[2]), words[3], strlen(words[3]), metadata,
                                   metadata_length, &call);
    else
        status = proxy_grpc_call(upstream, length, words[2], strlen(words[2]), words[3], strlen(words[3]), metadata,
                                 metadata_length, text, strlen(text), 2000, &call);
    if (status == OK) remember(run->call = call, run->id, "grpc");
    return name_of(status);
}

static const char *raw(run *, const char *const *words);
static const char *wasi(const char *const *words);

static char *bytes;
static size length;

static const char *header_step(const char *const *words, const char *text) {
    uint32_t map = index_of(MAPS, words[1]);
    const char *verb = words[0], *name = words[2];
    char flat[4096];
    if (strcmp(verb, "get") == 0)
        return value(proxy_get_header_map_value(map, name, strlen(name), &bytes, &length), bytes, length);
    if (strcmp(verb, "add") == 0)
        return name_of(proxy_add_header_map_value(map, name, strlen(name), text, strlen(text)));
    if (strcmp(verb, "set") == 0)
        return name_of(proxy_replace_header_map_value(map, name, strlen(name), text, strlen(text)));
    if (strcmp(verb, "remove") == 0) return name_of(proxy_remove_header_map_value(map, name, strlen(name)));
    if (strcmp(verb, "pairs") == 0) return listed(proxy_get_header_map_pairs(map, &bytes, &length), bytes, length);
    if (strcmp(verb, "set_pairs") == 0)
        return name_of(proxy_set_header_map_pairs(map, flat, pairs_of(name, flat)));
    return NULL;
}

static const char *body_step(const char *const *words, const char *text) {
    uint32_t type = index_of(BUFFERS, words[1]);
    const char *verb = words[0];
    if (strcmp(verb, "body") == 0)
        return value(proxy_get_buffer_bytes(type, atoi(words[2]), strtoul(words[3], NULL, 10), &bytes, &length), bytes,
                     length);
    if (strcmp(verb, "append") == 0) return name_of(proxy_set_buffer_bytes(type, INT32_MAX, 0, text, strlen(text)));
    if (strcmp(verb, "prepend") == 0) return name_of(proxy_set_buffer_bytes(type, 0, 0, text, strlen(text)));
    if (strcmp(verb, "replace") == 0) return name_of(proxy_set_buffer_bytes(type, 0, INT32_MAX, text, strlen(text)));
    if (strcmp(verb, "length") == 0) {
        uint32_t flags;
        return number(proxy_get_buffer_status(type, &length, &flags), length);
    }
    return NULL;
}

static const char *shared_step(run *run, const char *const *words, const char *text) {
    const char *verb = words[0];
    if (strcmp(verb, "shared_get") == 0)
        return value(proxy_get_shared_data(words[1], strlen(words[1]), &bytes, &length, &run->cas), bytes, length);
    if (strcmp(verb, "shared_set") == 0) {
        uint32_t cas = strcmp(words[2], "cas") == 0 ? run->cas : strcmp(words[2], "stale") == 0 ? run->cas + 1000 : 0;
        return name_of(proxy_set_shared_data(words[1], strlen(words[1]), text, strlen(text), cas));
    }
    if (strcmp(verb, "queue_register") == 0)
        return name_of(proxy_register_shared_queue(words[1], strlen(words[1]), &run->queue));
    if (strcmp(verb, "queue_resolve") == 0) {
        size vm = strcmp(words[1], "-") == 0 ? 0 : strlen(words[1]);
        return name_of(proxy_resolve_shared_queue(words[1], vm, words[2], strlen(words[2]), &run->queue));
    }
    if (strcmp(verb, "enqueue") == 0)
        return name_of(proxy_enqueue_shared_queue(run->queue, words[1], strlen(words[1])));
    if (strcmp(verb, "enqueue_to") == 0)
        return name_of(proxy_enqueue_shared_queue(atoi(words[1]), words[2], strlen(words[2])));
    if (strcmp(verb, "dequeue") == 0)
        return value(proxy_dequeue_shared_queue(run->queue, &bytes, &length), bytes, length);
    return NULL;
}

static const char *metric_step(const char *const *words) {
    const char *verb = words[0];
    if (strcmp(verb, "metric") == 0) {
        uint32_t metric;
        status status = proxy_define_metric(index_of(KINDS, words[1]), words[2], strlen(words[2]), &metric);
        if (status == OK && defined < 256) {
            metrics[defined].metric = metric;
            strncpy(metrics[defined++].name, words[2], 63);
        }
        return name_of(status);
    }
    if (strcmp(verb, "increment") == 0) return name_of(proxy_increment_metric(metric_of(words[1]), atoll(words[2])));
    if (strcmp(verb, "record") == 0) return name_of(proxy_record_metric(metric_of(words[1]), atoll(words[2])));
    if (strcmp(verb, "metric_get") == 0) {
        uint64_t now;
        return number(proxy_get_metric(metric_of(words[1]), &now), now);
    }
    return NULL;
}

static const char *stream_step(run *run, const char *const *words, const char *text) {
    const char *verb = words[0];
    char flat[4096];
    if (strcmp(verb, "local") == 0)
        return name_of(proxy_send_local_response(atoi(words[1]), "script", 6, text, strlen(text), flat,
                                                 pairs_of(words[2], flat), -1));
    if (strcmp(verb, "local_grpc") == 0)
        return name_of(proxy_send_local_response(atoi(words[1]), "script", 6, text, strlen(text), flat,
                                                 pairs_of("-", flat), atoi(words[2])));
    if (strcmp(verb, "resume") == 0) return name_of(resume(words[1]));
    if (strcmp(verb, "bad_call") == 0) {
        uint32_t call;
        return name_of(proxy_http_call(words[1], strlen(words[1]), flat, pairs_of(":method=GET", flat), NULL, 0, NULL, 0,
                                       1000, &call));
    }
    if (strcmp(verb, "grpc_send") == 0)
        return name_of(proxy_grpc_send(run->call, words[1], strlen(words[1]), strcmp(words[2], "end") == 0));
    if (strcmp(verb, "grpc_cancel") == 0) return name_of(proxy_grpc_cancel(run->call));
    if (strcmp(verb, "grpc_close") == 0) return name_of(proxy_grpc_close(run->call));
    if (strncmp(verb, "grpc_", 5) == 0) return grpc(run, words, text);
    return NULL;
}

static const char *host_step(run *run, const char *const *words, const char *text) {
    const char *verb = words[0];
    char path[256];
    if (strncmp(verb, "property", 8) == 0) {
        status status = proxy_get_property(path, path_of(words[1], path), &bytes, &length);
        if (strcmp(verb, "property_number") == 0 && status == OK && length == 8) return number(OK, *(int64_t *)bytes);
        return value(status, bytes, length);
    }
    if (strcmp(verb, "set_property") == 0)
        return name_of(proxy_set_property(path, path_of(words[1], path), words[2], strlen(words[2])));
    if (strcmp(verb, "tick") == 0) return name_of(proxy_set_tick_period_milliseconds(atoi(words[1])));
    if (strcmp(verb, "effective") == 0) return name_of(proxy_set_effective_context(atoi(words[1])));
    if (strcmp(verb, "done") == 0) return name_of(proxy_done());
    if (strcmp(verb, "get_status") == 0) {
        uint32_t code;
        return number(proxy_get_status(&code, &bytes, &length), code);
    }
    if (strcmp(verb, "time") == 0) {
        uint64_t time = 0;
        status status = proxy_get_current_time_nanoseconds(&time);
        return status == OK && time < 1600000000000000000 ? "before 2020" : name_of(status);
    }
#if ABI == 10
    if (strcmp(verb, "configuration") == 0) return value(proxy_get_configuration(&bytes, &length), bytes, length);
    if (strcmp(verb, "clear_route_cache") == 0) return name_of(proxy_clear_route_cache());
#else
    if (strcmp(verb, "close") == 0) return name_of(proxy_close_stream(index_of(BUFFERS, words[1])));
    if (strcmp(verb, "foreign") == 0) {
        bytes = NULL, length = 0;
        return value(proxy_call_foreign_function(words[1], strlen(words[1]), words[2], strlen(words[2]), &bytes, &length),
                     bytes, length);
    }
    if (strcmp(verb, "foreign_hex") == 0) {
        char arguments[1024];
        size count = 0;
        for (const char *at = words[2]; at[0] && at[1] && count < sizeof arguments; at += 2)
            sscanf(at, "%2hhx", (unsigned char *)&arguments[count++]);
        bytes = NULL, length = 0;
        return value(proxy_call_foreign_function(words[1], strlen(words[1]), arguments, count, &bytes, &length), bytes,
                     length);
    }
#endif
#if ABI == 21
    if (strcmp(verb, "log_level") == 0) {
        uint32_t level;
        return number(proxy_get_log_level(&level), level);
    }
#endif
    return NULL;
}

const char *step(run *run, const char *step) {
    const char *words[MOST_WORDS], *rest[MOST_WORDS + 1];
    char *copy = strdup(step), *save;
    for (int n = 0; n < MOST_WORDS; n++) words[n] = rest[n] = "";
    rest[MOST_WORDS] = "";
    int n = 0;
    for (char *word = strtok_r(copy, " ", &save); word && n < MOST_WORDS; word = strtok_r(NULL, " ", &save)) {
        rest[n] = step + (word - copy);
        words[n++] = word;
    }
    const char *verb = words[0], *found;
    if (!*verb || strcmp(verb, "at") == 0 || strcmp(verb, "when") == 0) return "";
    if (strcmp(verb, "pause") == 0) return run->action = PAUSE, "";
    if (strcmp(verb, "action") == 0) return run->action = atoi(words[1]), "";
    if (strcmp(verb, "refuse") == 0) return run->refused = true, "";
    if (strcmp(verb, "trap") == 0) __builtin_trap();
    if (strcmp(verb, "log") == 0) return proxy_log(index_of(LEVELS, words[1]), rest[2], strlen(rest[2])), "";
    if (strcmp(verb, "print") == 0) return puts(rest[1]), fflush(stdout), "";
    if (strcmp(verb, "eprint") == 0) return fprintf(stderr, "%s\n", rest[1]), "";
    if (strcmp(verb, "environment") == 0) {
        const char *there = getenv(words[1]);
        return there ? quoted(there, strlen(there)) : "(empty)";
    }
    if (strcmp(verb, "call") == 0) return http_call(run, words, rest[6]);
    if (strcmp(verb, "raw") == 0) return raw(run, words);
    if (strcmp(verb, "wasi") == 0) return wasi(words);
    if ((found = header_step(words, rest[3])) || (found = body_step(words, rest[2]))) return found;
    if ((found = shared_step(run, words, rest[3])) || (found = metric_step(words))) return found;
    if ((found = stream_step(run, words, strcmp(verb, "grpc_call") == 0 ? rest[4] : rest[3]))) return found;
    if ((found = host_step(run, words, rest[2]))) return found;
    return "no such step";
}

/* An address outside the memory of every module here. */
#define NOWHERE ((char *)0xffffff00)

static const char *raw(run *run, const char *const *words) {
    const char *what = words[1];
    uint32_t id;
    if (strcmp(what, "log_level") == 0) return name_of(proxy_log(9, "never", 5));
    if (strcmp(what, "log_memory") == 0) return name_of(proxy_log(2, NOWHERE, 4096));
    if (strcmp(what, "map_get") == 0) return value(proxy_get_header_map_value(99, "a", 1, &bytes, &length), bytes, length);
    if (strcmp(what, "map_pairs") == 0) return listed(proxy_get_header_map_pairs(99, &bytes, &length), bytes, length);
    if (strcmp(what, "map_size") == 0)
        return number(proxy_get_header_map_size(index_of(MAPS, words[2]), &length), length);
    if (strcmp(what, "map_memory") == 0)
        return name_of(proxy_get_header_map_value(0, NOWHERE, 4096, &bytes, &length));
    if (strcmp(what, "map_result") == 0)
        return name_of(proxy_get_header_map_value(0, ":path", 5, (char **)NOWHERE, &length));
    if (strcmp(what, "pairs_cut") == 0) return name_of(proxy_set_header_map_pairs(0, "\x05\0\0\0", 4));
    if (strcmp(what, "empty_pairs") == 0) {
        status status = proxy_get_header_map_pairs(index_of(MAPS, words[2]), &bytes, &length);
        if (status != OK) return name_of(status);
        uint32_t count = 0;
        if (length >= 4) memcpy(&count, bytes, 4);
        return number(OK, count);
    }
    if (strcmp(what, "buffer_type") == 0)
        return value(proxy_get_buffer_bytes(99, 0, 10, &bytes, &length), bytes, length);
    if (strcmp(what, "buffer_overflow") == 0)
        return value(proxy_get_buffer_bytes(7, UINT32_MAX - 1, UINT32_MAX - 1, &bytes, &length), bytes, length);
    if (strcmp(what, "buffer_clip") == 0) /* everything after four bytes, with a length beyond the end */
        return value(proxy_get_buffer_bytes(7, 4, 1 << 20, &bytes, &length), bytes, length);
    if (strcmp(what, "set_configuration") == 0) return name_of(proxy_set_buffer_bytes(7, 0, 1, "x", 1));
    if (strcmp(what, "set_call_header") == 0) return name_of(proxy_add_header_map_value(6, "a", 1, "b", 1));
    if (strcmp(what, "metric_kind") == 0) return name_of(proxy_define_metric(9, "bad", 3, &id));
    if (strcmp(what, "metric_id") == 0) return name_of(proxy_increment_metric(0xfffffff0, 1));
    if (strcmp(what, "queue_id") == 0) return name_of(proxy_dequeue_shared_queue(0xfffffff0, &bytes, &length));
    if (strcmp(what, "call_upstream") == 0) {
        char flat[256];
        size size = pairs_of(":method=GET,:path=/,:authority=a", flat);
        return name_of(proxy_http_call("nobody", 6, flat, size, NULL, 0, NULL, 0, 1000, &id));
    }
    if (strcmp(what, "grpc_send") == 0) return name_of(proxy_grpc_send(0xfffffff0, "a", 1, 1));
    if (strcmp(what, "grpc_cancel") == 0) return name_of(proxy_grpc_cancel(0xfffffff0));
    if (strcmp(what, "grpc_close") == 0) return name_of(proxy_grpc_close(0xfffffff0));
#if ABI != 10
    if (strcmp(what, "continue_type") == 0) return name_of(proxy_continue_stream(9));
    if (strcmp(what, "close_type") == 0) return name_of(proxy_close_stream(9));
#endif
    if (strcmp(what, "loop") == 0)
        for (volatile uint32_t n = 0;; n++) {}
    if (strcmp(what, "exit") == 0) imported_proc_exit(atoi(words[2]));
    return "no such step";
}

static const char *wasi(const char *const *words) {
    static const char *const descriptors[] = { "fd_prestat_get", "fd_prestat_dir_name", "fd_close", "fd_fdstat_get",
        "fd_fdstat_set_flags", "fd_read", "path_open", "path_filestat_get", NULL };
    char room[256] = { 0 };
    uint32_t count = 0, sizes = 0, fd = atoi(words[2]);
    uint64_t time = 0;
    switch (index_of(descriptors, words[1])) {
    case 0: return number(OK, imported_fd_prestat_get(fd, room));
    case 1: return number(OK, imported_fd_prestat_dir_name(fd, room, 8));
    case 2: return number(OK, imported_fd_close(fd));
    case 3: return number(OK, imported_fd_fdstat_get(fd, room));
    case 4: return number(OK, imported_fd_fdstat_set_flags(fd, 0));
    case 5: return number(OK, imported_fd_read(fd, room, 0, &count));
    case 6: return imported_path_open(fd, 0, "a", 1, 0, 0, 0, 0, &count) ? "an error" : "opened";
    case 7: return imported_path_filestat_get(fd, 0, "a", 1, room) ? "an error" : "found";
    }
    if (strcmp(words[1], "args_sizes_get") == 0) return number(OK, imported_args_sizes_get(&count, &sizes));
    if (strcmp(words[1], "args_get") == 0) return number(OK, imported_args_get((uint32_t)room, (uint32_t)room));
    if (strcmp(words[1], "environ_sizes_get") == 0) return number(OK, imported_environ_sizes_get(&count, &sizes));
    if (strcmp(words[1], "clock_time_get") == 0) {
        uint32_t failed = imported_clock_time_get(fd, 0, &time);
        return number(OK, failed ? failed : time == 0);
    }
    if (strcmp(words[1], "random_get") == 0) {
        uint32_t failed = imported_random_get(room, 64), sum = 0;
        for (int n = 0; n < 64; n++) sum += room[n] != 0;
        return failed ? number(OK, failed) : sum ? "0" : "all zero";
    }
    if (strcmp(words[1], "random_much") == 0) {
        static char much[65537];
        return imported_random_get(much, sizeof much) ? "an error" : "filled";
    }
    if (strcmp(words[1], "sched_yield") == 0) return number(OK, imported_sched_yield());
    if (strcmp(words[1], "poll_oneoff") == 0) return imported_poll_oneoff(room, room, 0, &count) ? "an error" : "0";
    return "no such step";
}
