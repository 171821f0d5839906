/* One member of every issue. */
#include <orfa.h>
void orfa(const void *input, int len) {
    orfa_value issues = orfa_get_json("http://git/issues");
    int sum = 0;
    for orfa_each(issue, issues) sum += orfa_int(issue, 0, "/comments");
    orfa_done_as("{comments:%d}", sum);
}
