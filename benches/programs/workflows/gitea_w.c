/* gitea.w: deletes the accounts whose names begin with "bot". */
#include <orfa.h>

void orfa(const void *input, int len) {
    orfa_value accounts =
        orfa_get_json("http://api/api/v1/admin/users?limit=%d", orfa_int(orfa_json(input, len), 4, "/n") + 4);
    int count = orfa_len(accounts), deleted = 0;
    orfa_future calls[count];
    orfa_out out = orfa_array();
    for (int i = 0; i < count; i++) {
        const char *login = orfa_str(accounts, "", "/%d/login", i);
        if (login[0] != 'b' || login[1] != 'o' || login[2] != 't') continue;
        calls[deleted++] = orfa_delete("http://api/api/v1/admin/users/%s", login);
        orfa_add(out, "%s", login);
    }
    while (deleted) orfa_wait_ok(calls[--deleted]);
    orfa_done_json(out);
}
