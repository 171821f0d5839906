//! The system calls of wasi-libc, implemented here so that the environment only imports from `orfa`. There are no
//! files; the clock is the host's, and 0 while the snapshot is taken.
#include "host.h"

#define WASI(NAME) __imported_wasi_snapshot_preview1_##NAME
enum { WASI_OK = 0, WASI_BAD_FILE = 8 };

int32_t WASI(clock_time_get)(int32_t id, int64_t precision, int32_t time) {
    (void)id, (void)precision;
    *(int64_t *)time = running ? host_clock() * 1000000 : 0;
    return WASI_OK;
}

int32_t WASI(fd_close)(int32_t fd) { return (void)fd, WASI_BAD_FILE; }

int32_t WASI(fd_fdstat_get)(int32_t fd, int32_t stat) { return (void)fd, (void)stat, WASI_BAD_FILE; }

int32_t WASI(fd_seek)(int32_t fd, int64_t offset, int32_t whence, int32_t position) {
    return (void)fd, (void)offset, (void)whence, (void)position, WASI_BAD_FILE;
}

int32_t WASI(fd_write)(int32_t fd, int32_t parts, int32_t count, int32_t written) {
    return (void)fd, (void)parts, (void)count, (void)written, WASI_BAD_FILE;
}

_Noreturn void WASI(proc_exit)(int32_t code) {
    (void)code;
    __builtin_trap();
}
