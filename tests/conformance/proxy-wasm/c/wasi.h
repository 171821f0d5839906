/* WASI functions, imported from the namespace in the macro WASI: `wasi_snapshot_preview1`, or `wasi_unstable`, which
 * the AssemblyScript runtime uses. 64-bit arguments have the same positions as in the interface. */
#pragma once
#include <stdint.h>

#define WASI_FUNCTION(name) __attribute__((import_module(WASI), import_name(#name))) uint32_t imported_##name

WASI_FUNCTION(args_get)(uint32_t, uint32_t);
WASI_FUNCTION(args_sizes_get)(uint32_t *, uint32_t *);
WASI_FUNCTION(clock_time_get)(uint32_t clock, uint64_t precision, uint64_t *time);
WASI_FUNCTION(environ_get)(uint32_t, uint32_t);
WASI_FUNCTION(environ_sizes_get)(uint32_t *, uint32_t *);
WASI_FUNCTION(fd_close)(uint32_t);
WASI_FUNCTION(fd_fdstat_get)(uint32_t, void *);
WASI_FUNCTION(fd_fdstat_set_flags)(uint32_t, uint32_t);
WASI_FUNCTION(fd_prestat_get)(uint32_t, void *);
WASI_FUNCTION(fd_prestat_dir_name)(uint32_t, char *, uint32_t);
WASI_FUNCTION(fd_read)(uint32_t, const void *, uint32_t, uint32_t *);
WASI_FUNCTION(fd_write)(uint32_t, const void *, uint32_t, uint32_t *);
WASI_FUNCTION(path_open)(uint32_t, uint32_t, const char *, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t, uint32_t *);
WASI_FUNCTION(path_filestat_get)(uint32_t, uint32_t, const char *, uint32_t, void *);
WASI_FUNCTION(poll_oneoff)(const void *, void *, uint32_t, uint32_t *);
WASI_FUNCTION(random_get)(void *, uint32_t);
WASI_FUNCTION(sched_yield)(void);
__attribute__((import_module(WASI), import_name("proc_exit"))) _Noreturn void imported_proc_exit(uint32_t);
