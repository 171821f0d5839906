/* market.r: the second newest posting of each buyer. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value buyers = orfa_get_json("http://profile/buyers?limit=%d", orfa_int(orfa_json(input, len), 4, "/n"));
    int count = orfa_len(buyers);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://catalog/catalogs?buyer=%v&sort=-created&limit=2", orfa_at(buyers, "/%d/id", i));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/1/title"));
    orfa_done_json(out);
}
