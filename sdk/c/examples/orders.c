/* Orders, each with its posting and its freelancer: three calls for any number of orders, and a join of the three
 * lists. Input: {"limit": 50}. */
#include <orfa.h>

void orfa(const void *input, int len) {
    int limit = orfa_int(orfa_json(input, len), 50, "/limit");
    orfa_value orders = orfa_get_json("http://order/orders?limit=%d", limit);
    orfa_future catalogs = orfa_get("http://catalog/catalogs?ids=%v", orfa_pluck(orders, "catalog_id"));
    orfa_future freelancers =
        orfa_get("http://profile/freelancers?ids=%v", orfa_pluck(orders, "freelancer_id"));
    orfa_value postings = orfa_wait_json(catalogs), people = orfa_wait_json(freelancers);
    orfa_out out = orfa_array();
    for orfa_each(order, orders) {
        orfa_value posting = orfa_find(postings, "id", orfa_at(order, "/catalog_id"));
        orfa_value person = orfa_find(people, "id", orfa_at(order, "/freelancer_id"));
        orfa_add(out, "{...%v,catalog:%v,freelancer:%v}", order, orfa_pick(posting, "id,title,price"),
                 orfa_pick(person, "id,name"));
    }
    orfa_done_json(out);
}
