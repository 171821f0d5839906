/* Gives the first n articles a tag, by one write to the tag; answers their titles. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value options = orfa_json(input, len);
    orfa_value articles =
        orfa_at(orfa_get_json("http://strapi/api/articles?fields=title&sort=published&pagination[limit]=%d",
                              orfa_int(options, 4, "/n")),
                "/data");
    orfa_wait_ok(orfa_put("http://strapi/api/tags/%v", "{data:{articles:{connect:%v}}}",
                          orfa_at(options, "/tag"), orfa_pluck(articles, "documentId")));
    orfa_done_as("%v", orfa_pluck(articles, "title"));
}
