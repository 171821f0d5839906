/* Waits for one upstream call: an instance that lives as long as that takes. */
#include <orfa.h>

void orfa(const void *input, int len) {
    (void)input, (void)len;
    orfa_wait_ok(orfa_get("http://slow/"));
    orfa_done_text("hello world");
}
