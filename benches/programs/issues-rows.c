/* Three members of one issue in a hundred. */
#include <orfa.h>
void orfa(const void *input, int len) {
    orfa_value issues = orfa_get_json("http://git/issues");
    orfa_out out = orfa_array();
    for (int i = 7; i < orfa_len(issues); i += 100) {
        orfa_value issue = orfa_at(issues, "/%d", i);
        orfa_add(out, "{number:%v,title:%v,by:%v}", orfa_at(issue, "/number"), orfa_at(issue, "/title"), orfa_at(issue, "/user/login"));
    }
    orfa_done_json(out);
}
