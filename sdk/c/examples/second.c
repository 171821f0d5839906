/* The second newest posting of each buyer: one call for the buyers, then one for each, all concurrent.
 * Input: {"n": 8}, the number of buyers. */
#include <orfa.h>

void orfa(const void *input, int len) {
    int n = orfa_int(orfa_json(input, len), 8, "/n");
    orfa_value buyers = orfa_get_json("http://profile/buyers?limit=%d", n);
    int count = orfa_len(buyers);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://catalog/catalogs?buyer=%d&sort=-created&limit=2",
                            orfa_int(buyers, 0, "/%d/id", i));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++)
        orfa_add(out, "{buyer:%v,second:%v}", orfa_at(buyers, "/%d/name", i),
                 orfa_at(orfa_wait_json(calls[i]), "/1/title"));
    orfa_done_json(out);
}
