/* memos.w: makes all notes of a user private. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value notes = orfa_get_json("http://api/api/v1/memos?creator=1&limit=%d", orfa_int(orfa_json(input, len), 4, "/n"));
    int count = orfa_len(notes);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_patch("http://api/api/v1/memos/%v", "{visibility:%s}", orfa_at(notes, "/%d/id", i), "PRIVATE");
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/uid"));
    orfa_done_json(out);
}
