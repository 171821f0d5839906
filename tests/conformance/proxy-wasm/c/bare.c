/* The smallest module: a version marker and an allocator. Every callback is optional. */
#define EXPORT(name) __attribute__((export_name(#name)))

static char heap[65536];
static unsigned used;

EXPORT(proxy_abi_version_0_2_1) void version(void) {}

EXPORT(proxy_on_memory_allocate) char *allocate(unsigned size) {
    used += size;
    return used <= sizeof heap ? heap + used - size : 0;
}
