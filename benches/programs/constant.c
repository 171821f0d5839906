/* The smallest query: answers a constant. */
#include <orfa.h>

void orfa(const void *input, int len) {
    (void)input, (void)len;
    orfa_done_text("hello world");
}
