/* Sends a notice to each admin among the first n users, and answers their IDs: a list, a condition and the writes
 * that depend on it, in one request.
 * Input: {"n": 16, "text": "..."}. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value options = orfa_json(input, len);
    const char *notice = orfa_str(options, "Maintenance tonight at 22:00 UTC.", "/text");
    orfa_value users = orfa_get_json("http://profile/users?limit=%d", orfa_int(options, 16, "/n"));
    int count = orfa_len(users), sent = 0;
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://profile/users/%d", orfa_int(users, 0, "/%d/id", i));
    orfa_out notified = orfa_array();
    for (int i = 0; i < count; i++) {
        orfa_value user = orfa_wait_json(calls[i]);
        if (!orfa_has(orfa_at(user, "/roles"), "admin")) continue;
        orfa_value id = orfa_at(user, "/id");
        calls[sent++] = orfa_post("http://profile/users/%v/notices", "{text:%s}", id, notice);
        orfa_add(notified, "%v", id);
    }
    while (sent) orfa_wait_ok(calls[--sent]);
    orfa_done_json(notified);
}
