/* The system calls of wasi-libc. A guest has no operating system: files don't exist, clock and random numbers come
 * from the host, and exiting traps. Defining these names keeps all imports of WASI out of the environment. */
#include <stdint.h>
#include <orfa_abi.h>

enum { SUCCESS = 0, BAD_FILE = 8, NOT_SUPPORTED = 58 };

#define WASI(name) __imported_wasi_snapshot_preview1_##name

int32_t WASI(clock_time_get)(int32_t clock, int64_t precision, int32_t result) {
    (void)clock, (void)precision;
    *(int64_t *)result = orfa_host_clock() * 1000000;
    return SUCCESS;
}

int32_t WASI(clock_res_get)(int32_t clock, int32_t result) {
    (void)clock;
    *(int64_t *)result = 1000000;
    return SUCCESS;
}

int32_t WASI(random_get)(int32_t data, int32_t len) {
    orfa_host_random((void *)data, len);
    return SUCCESS;
}

int32_t WASI(environ_sizes_get)(int32_t count, int32_t bytes) {
    *(int32_t *)count = 0;
    *(int32_t *)bytes = 0;
    return SUCCESS;
}

int32_t WASI(environ_get)(int32_t names, int32_t data) {
    (void)names, (void)data;
    return SUCCESS;
}

int32_t WASI(fd_close)(int32_t file) {
    (void)file;
    return BAD_FILE;
}

int32_t WASI(fd_fdstat_get)(int32_t file, int32_t result) {
    (void)file, (void)result;
    return BAD_FILE;
}

int32_t WASI(fd_seek)(int32_t file, int64_t offset, int32_t whence, int32_t result) {
    (void)file, (void)offset, (void)whence, (void)result;
    return BAD_FILE;
}

int32_t WASI(fd_read)(int32_t file, int32_t vectors, int32_t count, int32_t result) {
    (void)file, (void)vectors, (void)count, (void)result;
    return BAD_FILE;
}

int32_t WASI(fd_write)(int32_t file, int32_t vectors, int32_t count, int32_t result) {
    (void)file, (void)vectors, (void)count, (void)result;
    return BAD_FILE;
}

int32_t WASI(poll_oneoff)(int32_t subscriptions, int32_t events, int32_t count, int32_t result) {
    (void)subscriptions, (void)events, (void)count, (void)result;
    return NOT_SUPPORTED;
}

int32_t WASI(sched_yield)(void) { return SUCCESS; }

_Noreturn void WASI(proc_exit)(int32_t code) {
    (void)code;
    __builtin_trap();
}

/* Debian's compiler runtime is built with stack protectors, for 128-bit division. A stack overflow of a guest traps
 * anyway. */
uintptr_t __stack_chk_guard = 0x5bd1e995;

_Noreturn void __stack_chk_fail(void) { __builtin_trap(); }
