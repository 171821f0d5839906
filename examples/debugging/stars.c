/* The average stars of n completed orders, with a bug that docs/debugging.md finds. */
#include <orfa.h>

void orfa(const void *input, int len) {
    int n = orfa_int(orfa_json(input, len), 12, "/n");
    orfa_value orders = orfa_get_json("http://order/orders?status=completed&limit=%d", n);
    int sum = 0, reviews = 0;
    for orfa_each(order, orders) {
        int stars = orfa_int(order, 0, "/review/stars");
        sum += stars;
        reviews++;
    }
    orfa_log("%d stars in %d reviews", sum, reviews);
    orfa_done_as("{reviews:%d,average:%f}", reviews, (double)sum / reviews);
}
