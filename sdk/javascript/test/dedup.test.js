// Tests of the decoder, and of the client's use of it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { minify } from "terser";

import { orfa } from "../client.js";
import { decode } from "../dedup.js";
import { gateway } from "./server.js";

const ada = { id: 1, name: "Ada" };
const read = (text, cap) => decode(JSON.parse(text), cap);

test("the decoder is smaller than 1 kB, minified", async () => {
  const source = readFileSync(new URL("../dedup.js", import.meta.url), "utf8");
  const { code } = await minify(source, { module: true, compress: true, mangle: true });
  assert.ok(code.length < 1000, `${code.length} bytes`);
});

test("decodes references anywhere, also in entries to earlier ones", () => {
  const text = '{"t":[{"id":1,"name":"Ada"},{"by":{"$":0},"n":[1,{"$":0}]}],"r":[{"$":1},{"x":{"$":0}},{"$":1},7,null]}';
  const post = { by: ada, n: [1, ada] };
  assert.deepEqual(read(text), [post, { x: ada }, post, 7, null]);
  const answer = { data: { a: ada }, errors: [ada] };
  assert.deepEqual(read('{"t":[{"id":1,"name":"Ada"}],"data":{"a":{"$":0}},"errors":[{"$":0}]}'), answer);
  for (const root of [7, "x", null, true, []]) assert.deepEqual(read(`{"t":[],"r":${JSON.stringify(root)}}`), root);
});

test("equal objects are one frozen object in memory", () => {
  const [one, other, own] = read('{"t":[{"a":{"b":1}}],"r":[{"$":0},{"$":0},{"c":1}]}');
  assert.equal(one, other);
  assert.throws(() => (one.a.b = 2), TypeError);
  own.c = 2;
});

test("unescapes names that consist of `$` only", () => {
  const text = '{"t":[],"r":[{"$$":{"$$$":1}},{"$":1,"a":2},{"$a":1},{"$$":0,"$":1},{"__proto__":{"$$":"x"}}]}';
  const plain = '[{"$":{"$$":1}},{"$":1,"a":2},{"$a":1},{"$$":0,"$":1},{"__proto__":{"$":"x"}}]';
  assert.equal(JSON.stringify(read(text)), plain);
});

test("ignores additions of a page to Object.prototype", (t) => {
  Object.prototype.added = () => {};
  t.after(() => delete Object.prototype.added);
  assert.equal(JSON.stringify(read('{"t":[{"id":1}],"r":[{"$":0},{}]}')), '[{"id":1},{}]');
});

test("rejects references forwards, to themselves or to missing entries", () => {
  const code = "dedup-reference";
  for (const index of ["0", "1", "-1", "0.5", '"0"', '"length"', "null", "[0]", "{}", "1e400"]) {
    assert.throws(() => read(`{"t":[{"a":{"$":${index}}},1],"r":1}`), { code }, index);
  }
  assert.throws(() => read('{"t":[1],"r":{"$":1}}'), { code, message: /no entry 1 comes before this/ });
  for (const text of ["{}", '{"t":{}}', "[]", '{"t":1,"r":2}']) {
    assert.throws(() => read(text), { code: "not-deduplicated" }, text);
  }
});

test("rejects bodies that expand beyond the cap", () => {
  const entries = ['"a text of forty characters, more or less"'];
  for (let entry = 1; entry < 60; entry++) entries.push(`[{"$":${entry - 1}},{"$":${entry - 1}}]`);
  const bomb = (count) => `{"t":[${entries.slice(0, count)}],"r":{"$":${count - 1}}}`;
  for (const count of [30, 60]) assert.throws(() => read(bomb(count)), { code: "dedup-too-long" });
  assert.throws(() => read(bomb(5), 600), { code: "dedup-too-long", message: /longer than 600/ });
  assert.equal(read(bomb(5), 1000).flat(4).length, 16);
});

const deduplicated = {
  headers: { "content-type": "application/vnd.orfa.dedup+json" },
  body: Buffer.from('{"t":[{"id":1,"name":"Ada"}],"r":[{"$":0},{"$":0}]}'),
};

test("the client requests deduplicated answers and decodes them transparently", async (t) => {
  const { url, requests } = await gateway(t, () => deduplicated);
  const program = orfa(url).program("export default () => 1");
  assert.deepEqual(await program(), [ada, ada]);
  assert.deepEqual(await orfa(url).stored("orders")(), [ada, ada]);
  const response = await program.fetch();
  assert.deepEqual(await response.json(), { t: [ada], r: [{ $: 0 }, { $: 0 }] });
  await orfa(url, { dedup: false }).stored("orders")();
  await orfa(url, { headers: { accept: "application/json" } }).stored("orders")();
  const asked = "application/vnd.orfa.dedup+json, */*;q=0.9";
  assert.deepEqual(requests.map(({ headers }) => headers.accept), [asked, asked, "*/*", "*/*", "application/json"]);
});

test("reports invalid deduplicated JSON like invalid JSON", async (t) => {
  const { url } = await gateway(t, () => ({ ...deduplicated, body: Buffer.from('{"t":[],"r":{"$":0}}') }));
  await assert.rejects(orfa(url).stored("orders")(), ({ code, cause }) => {
    assert.deepEqual([code, cause.code], ["not-json", "dedup-reference"]);
    return true;
  });
});
