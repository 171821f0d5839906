/* market.w: a notice to each user. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value users = orfa_get_json("http://profile/users?limit=%d", orfa_int(orfa_json(input, len), 4, "/n"));
    int count = orfa_len(users);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_post("http://profile/users/%v/notices", "{text:%s}", orfa_at(users, "/%d/id", i), "Maintenance tonight");
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/user_id"));
    orfa_done_json(out);
}
