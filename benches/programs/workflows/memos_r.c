/* memos.r: the second newest note of each user. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value users = orfa_get_json("http://api/api/v1/users?limit=%d", orfa_int(orfa_json(input, len), 4, "/n"));
    int count = orfa_len(users);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://api/api/v1/memos?creator=%v&limit=5", orfa_at(users, "/%d/id", i));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/1/uid"));
    orfa_done_json(out);
}
