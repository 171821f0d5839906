/* gitea.r: the second newest commit of each branch. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value branches =
        orfa_get_json("http://api/api/v1/repos/o/r/branches?limit=%d", orfa_int(orfa_json(input, len), 4, "/n"));
    int count = orfa_len(branches);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://api/api/v1/repos/o/r/commits?sha=%v", orfa_at(branches, "/%d/name", i));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/1/sha"));
    orfa_done_json(out);
}
