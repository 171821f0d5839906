// Decodes deduplicated JSON. docs/deduplication.md describes the form, dedup.d.ts the interface of this file.
//
// A table of values precedes the answer, and `{"$":3}` refers to the fourth. Each is decoded once, in place, so that it
// takes memory only once. The expanded length of the answer is counted along the way.

export const JSON_TYPE = "application/vnd.orfa.dedup+json";
export const GRAPHQL_TYPE = "application/graphql-dedup+json";

/** @type {typeof import("./dedup.d.ts").decode} */
export function decode({ t: table, ...root }, cap = 2 ** 26) {
  if (!Array.isArray(table)) fail("not-deduplicated", "this is not deduplicated JSON: it has no table `t`");
  /** @type {number[]} */
  const lengths = [];
  let length = 0;
  let shared = true;

  /** @type {(holder: any, name: string | number) => void} */
  const within = (holder, name) => {
    const value = holder[name];
    length++;
    if (typeof value == "string") length += value.length;
    if (typeof value != "object" || !value) return;
    const meant = read(value);
    if (meant !== value) holder[name] = meant;
  };
  /** @type {(value: any) => any} */
  const read = (value) => {
    let first;
    if (Array.isArray(value)) for (let place = 0; place < value.length; place++) within(value, place);
    else for (const name in value) within(value, (first ??= name, name));
    if (first?.[0] == "$" && Object.keys(value).length == 1) {
      const said = value[first];
      if (first == "$") {
        length += (typeof said == "number" && lengths[said]) || fail("dedup-reference", `no entry ${said} comes before this`);
        if (length > cap) fail("dedup-too-long", `the answer would be longer than ${cap}`);
        return table[said];
      }
      if (/^\$+$/.test(first)) value = { [first.slice(1)]: said };
    }
    return shared ? Object.freeze(value) : value;
  };

  for (let place = 0; place < table.length; place++) {
    length = 0;
    within(table, place);
    lengths[place] = length;
  }
  length = 0;
  shared = false;
  if (!("r" in root)) return read(root);
  within(root, "r");
  return root.r;
}

/** @type {(code: string, message: string) => never} */
function fail(code, message) {
  throw Object.assign(new Error(message), { code });
}
