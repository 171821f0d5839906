/* The article titles of the first n categories, with a call for each category. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value categories =
        orfa_at(orfa_get_json("http://strapi/api/categories?sort=name&pagination[limit]=%d",
                              orfa_int(orfa_json(input, len), 4, "/n")),
                "/data");
    int count = orfa_len(categories);
    orfa_future calls[count];
    for (int i = 0; i < count; i++)
        calls[i] = orfa_get("http://strapi/api/articles?filters[category][documentId]=%v&sort=title",
                            orfa_at(categories, "/%d/documentId", i));
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++)
        orfa_add(out, "{name:%v,articles:%v}", orfa_at(categories, "/%d/name", i),
                 orfa_pluck(orfa_at(orfa_wait_json(calls[i]), "/data"), "title"));
    orfa_done_json(out);
}
