/* Gives the first n articles a tag, by a write to each; answers their titles. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value options = orfa_json(input, len);
    orfa_value articles =
        orfa_at(orfa_get_json("http://strapi/api/articles?sort=published&pagination[limit]=%d",
                              orfa_int(options, 4, "/n")),
                "/data");
    int count = orfa_len(articles);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_put("http://strapi/api/articles/%v", "{data:{tags:{connect:[%v]}}}",
                            orfa_at(articles, "/%d/documentId", i), orfa_at(options, "/tag"));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++)
        orfa_add(out, "%v", orfa_at(orfa_wait_json(calls[i]), "/data/title"));
    orfa_done_json(out);
}
