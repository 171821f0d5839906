// A run from RUN to END: responses, calls, errors.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ASCII, END, FAIL, JSON_TEXT, TEXT } from "../frames.js";
import { gateway } from "./gateway.js";

const plain = (code) => ({ code: `function (query, response, $r) { ${code} }` });

test("a handler's text is the response, in END", async (t) => {
  const g = await gateway(t);
  const program = await g.service([{ code: `function (query, response, $r) { $r.respond("Hello " + query.name) }` }]);
  const end = await g.run(program, 0, { query: { name: "Zoë" } });
  assert.deepEqual([end.type, end.flags, end.status, end.kind, end.body], [END, 1, 0, TEXT, "Hello Zoë"]);
});

test("a call's result is returned to the handler", async (t) => {
  const calls = ({ url }) => ({ kind: JSON_TEXT, content: JSON.stringify({ url }) });
  const g = await gateway(t, { calls });
  const code = `async function (query, response, $r) {
    const g = $s.resource(["http://x/", "?q=", ""]);
    $r.respond([(await $r.call(1, g, 0, [query.a, "b c"])).url]);
  }`;
  const program = await g.service([{ code }]);
  const end = await g.run(program, 0, { query: { a: 1 } });
  assert.deepEqual([end.kind, end.body], [JSON_TEXT, '["http://x/1?q=b%20c"]']);
});

test("a result that no code reads is copied into the response unchanged", async (t) => {
  const calls = ({ url, flags }) =>
    url.endsWith("none") ? {} : { kind: url.endsWith("text") ? TEXT : JSON_TEXT, content: `{"n": 1.0, "f": ${flags}}` };
  const g = await gateway(t, { calls });
  const code = `async function (query, response, $r) {
    const g = $s.resource(["http://x/", ""]);
    const a = await $r.unread(1, g, 0, ["json"]), b = await $r.unread(1, g, 0, ["text"]), c = await $r.unread(1, g, 0, ["none"]);
    $r.respond({ a, list: [b, a, "é"], c, n: (await $r.call(1, g, 0, ["json"])).n });
  }`;
  const program = await g.service([{ code }, plain("$r.respond({ n: 1.5 })")]);
  const json = '{"n": 1.0, "f": 2}';
  const end = await g.run(program);
  assert.deepEqual([end.kind, end.body], [JSON_TEXT, `{"a":${json},"list":[${JSON.stringify(json)},${json},"é"],"n":1}`]);
  assert.equal((await g.run(program, 1)).body, '{"n":1.5}');
});

test("a writer's changes are in END, and the next run sees them", async (t) => {
  const g = await gateway(t);
  const add = { code: `function (query, response, $r) { const $c = $r.cells; $c.n++; $r.respond($c.n) }`, cells: ["n"] };
  const early = { code: `async function (query, response, $r) { const $c = $r.cells; $c.n++; $r.commit(); $r.respond($c.n) }`, cells: ["n"] };
  const program = await g.service([add, early]);
  g.state(9, 4, 0, 41);
  const end = await g.run(program, 0, { cells: [9], version: 4, durable: 4, writer: true });
  assert.deepEqual([end.flags, end.body, end.changes], [3, "42", "[[0,[],42]]"]);
  const last = await g.run(program, 1, { cells: [9], version: 5, durable: 4, writer: true });
  assert.deepEqual(last.frames.map(({ type, changes }) => [type, changes]), [[69, "[[0,[],43]]"], [END, undefined]]);
  assert.equal(last.body, "43");
});

test("an error is reported with its position in the script", async (t) => {
  const g = await gateway(t);
  const program = await g.service([{ code: `function () {\n  nowhere()\n}` }], { name: "my shop.sjs" });
  const fail = await g.run(program);
  assert.equal(fail.type, FAIL);
  assert.equal(fail.message, "ReferenceError: nowhere is not defined");
  assert.match(fail.stack, /my_shop\.sjs:3:\d+/);
});
