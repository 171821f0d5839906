/* The article titles of the first n categories, in one call, joined by Strapi. */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value categories = orfa_get_json(
        "http://strapi/api/categories?fields=name&populate[articles][fields]=title"
        "&populate[articles][sort]=title&sort=name&pagination[limit]=%d",
        orfa_int(orfa_json(input, len), 4, "/n"));
    orfa_out out = orfa_array();
    for orfa_each(category, orfa_at(categories, "/data"))
        orfa_add(out, "{name:%v,articles:%v}", orfa_at(category, "/name"),
                 orfa_pluck(orfa_at(category, "/articles"), "title"));
    orfa_done_json(out);
}
