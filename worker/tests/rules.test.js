// The rules of S that a worker implements, by number, tested through its protocol.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ANSWER, ASCII, BYTES, CALL, COMMIT, DECLARE, END, FAIL, JSON_ASCII, JSON_TEXT, NONE, REMOVE, TEXT, TWICE } from "../frames.js";
import { METHODS, gateway } from "./gateway.js";

/** A handler with this body. */
const plain = (body, cells) => ({ code: `function (query, response, $r, captured) { ${body} }`, cells });
const async = (body, cells) => ({ code: `async function (query, response, $r, captured) { ${body} }`, cells });
const types = (end) => end.frames.map(({ type }) => type);
const one = (cells, at) => ({ cells, version: at, durable: at });

test("rule 2: handlers are found by their numbers, each with its own cells", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("$r.respond($r.cells.b)", ["b"]), plain("$r.respond([$r.cells.b, $r.cells.a])", ["a", "b"])]);
  g.state(1, 1, 0, "A");
  g.state(2, 1, 0, "B");
  assert.equal((await g.run(program, 0, one([2], 1))).body, "B");
  assert.equal((await g.run(program, 1, one([1, 2], 1))).body, '["B","A"]');
});

test("rule 4: a write in a read-only handler is an error", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("$r.cells.n = 1", ["n"])]);
  const fail = await g.run(program, 0, { ...one([1], 0), method: METHODS.PUT });
  assert.deepEqual([fail.type, fail.message], [FAIL, "TypeError: state `n` can't be changed: this handler only reads its state (S rule 4)"]);
});

test("rule 5: a reader keeps its version across awaits, and a throw rolls back writes", async (t) => {
  let answer;
  const g = await gateway(t, { calls: () => new Promise((resolve) => (answer = () => resolve({}))) });
  const call = `await $r.call(1, $s.resource(["http://x/"]), 0, [])`;
  const program = await g.service([
    async(`const before = $r.cells.list.length; ${call}; $r.respond([before, $r.cells.list.length, $r.cells.list])`, ["list"]),
    plain("$r.cells.list.push(query.v); if (query.v < 0) throw new RangeError('negative')", ["list"]),
    plain("$r.respond($r.cells.list)", ["list"]),
  ]);
  g.state(1, 3, 0, [1]);
  const reader = g.start_run(program, 0, one([1], 3));
  await g.ping();
  await g.run(program, 1, { ...one([1], 3), writer: true, query: { v: 2 } });
  const thrown = await g.run(program, 1, { ...one([1], 4), durable: 3, writer: true, query: { v: -1 } });
  assert.deepEqual([thrown.type, thrown.kind, thrown.message], [FAIL, 0, "RangeError: negative"]);
  assert.equal((await g.run(program, 2, { cells: [1], version: 3, durable: 3 })).body, "[1]");
  assert.equal((await g.run(program, 2, { cells: [1], version: 4, durable: 4 })).body, "[1,2]");
  answer();
  assert.equal((await reader.ended).body, "[1,1,[1]]");
});

test("rule 6: an early commit is sent at once, and survives a later throw", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    async(`$r.initial(0, () => 0); $r.cells.id++; $r.commit(); await $r.call(1, $s.resource(["http://x/"]), 0, []); throw new Error("late")`, ["id"]),
    plain("$r.respond($r.cells.id)", ["id"]),
  ]);
  const end = await g.run(program, 0, { ...one([1], 0), writer: true });
  assert.deepEqual(types(end), [COMMIT, CALL, FAIL]);
  assert.equal(end.frames[0].changes, "[[0,[],1]]");
  assert.equal((await g.run(program, 1, one([1], 1))).body, "1");
});

test("rule 6: an early commit without changes is sent as well, since it unblocks other writers", async (t) => {
  const g = await gateway(t);
  const program = await g.service([async("$r.commit(); $r.respond($r.cells.id ?? 'none')", ["id"])]);
  const end = await g.run(program, 0, { ...one([1], 0), writer: true });
  assert.deepEqual([types(end), end.frames[0].changes, end.body], [[COMMIT, END], "", "none"]);
});

test("rule 8: a cell is initialised once, and an initialiser that throws has no effect", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("$r.initial(0, () => 5); $r.respond(++$r.cells.n)", ["n"])], {
    cells: ["list", "odd"],
    initials: `$s.initial(0, () => [1, 2]); $s.initial(1, () => { throw new Error("no") });`,
  });
  const first = await g.run(program, 0, { ...one([1], 0), writer: true });
  const second = await g.run(program, 0, { ...one([1], 1), writer: true });
  assert.deepEqual([first.body, first.changes, second.body, second.changes], ["6", "[[0,[],6]]", "7", "[[0,[],7]]"]);
  const begun = await g.run(program, 0, { cells: [5], version: 0, initialise: [0] });
  assert.deepEqual([begun.type, begun.changes], [END, "[[0,[],[1,2]]]"]);
  const failed = await g.run(program, 0, { cells: [6], version: 0, initialise: [1] });
  assert.deepEqual([failed.type, failed.message], [FAIL, "Error: no"]);
});

test("rule 8: state that is not JSON fails the run with the name of the value", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("$r.cells.a = 1; $r.cells.b = { when: new Date() }", ["a", "b"])]);
  const fail = await g.run(program, 0, { ...one([1, 2], 0), writer: true });
  assert.deepEqual([fail.type, fail.kind], [FAIL, 2]);
  assert.match(fail.message, /^`b\.when` can't be an instance of Date.*\(S rule 8\)$/);
});

test("rule 9: a nested resource gets an immutable snapshot", async (t) => {
  const g = await gateway(t);
  const program = await g.service(
    [
      async(`const total = { sum: [1, 2] }, g = $s.resource(["http://x/", "?a=", ""]);
        await $r.declare(4, 1, "/total/" + 7, { total, g, none: undefined, view: $r.cells.c }); total.sum.push(3); $r.respond("made")`, ["c"]),
      async(`const { total, g, none, view } = captured; if (query.change) total.sum.push(1);
        await $r.call(2, g, 0, [1, 2]); $r.respond([total.sum, none === undefined, view])`),
    ],
    { resources: [{}, { cells: [{ index: 0, name: "s" }, { index: 1, name: "n" }] }], cells: ["s", "n"], initials: `$s.initial(0, ({ total }) => total.sum.length);` },
  );
  g.state(1, 1, 0, { deep: [1] });
  const end = await g.run(program, 0, { ...one([1], 1), method: METHODS.POST });
  const { site, resource, path, captures, initials } = end.frames.find(({ type }) => type === DECLARE);
  assert.deepEqual([site, resource, path, initials, end.body], [4, 1, "/total/7", '{"s":2}', "made"]);
  g.instance(9, captures);
  const nested = await g.run(program, 1, { instance: 9 });
  assert.deepEqual([nested.body, nested.frames[0].url], ['[[1,2],true,{"deep":[1]}]', "http://x/1?a=2"]);
  assert.match((await g.run(program, 1, { instance: 9, query: { change: 1 } })).message, /^TypeError: Cannot add property 2|read only|readonly/);
  assert.equal((await g.run(program, 1, { instance: 9 })).body, nested.body);
});

test("rule 9: the error for an invalid capture contains its name", async (t) => {
  const g = await gateway(t);
  const program = await g.service([async(`await $r.declare(1, 0, "/x", { page: { f() {} } })`)]);
  const fail = await g.run(program);
  assert.deepEqual([fail.kind, fail.message.split(":")[0]], [2, "`page.f` can't be a function"]);
});

test("rule 10: a taken path is an error at the declaration, and a resource can remove itself", async (t) => {
  const taken = { outcome: 4, status: 500, message: "the path /x is taken by shop.sjs:3:5" };
  const g = await gateway(t, { calls: () => taken });
  const program = await g.service([
    async(`try { await $r.declare(3, 0, "/x", {}) } catch (error) { if (query.catch) return $r.respond(error.status + error.message); throw error }`),
    plain("response.remove(); $r.respond('gone')"),
  ]);
  const fail = await g.run(program);
  assert.deepEqual([fail.kind, fail.site, fail.status, fail.message], [6, 3, 500, taken.message]);
  assert.equal((await g.run(program, 0, { query: { catch: 1 } })).body, `500${taken.message}`);
  const removed = await g.run(program, 1);
  assert.deepEqual([types(removed), removed.body], [[REMOVE, END], "gone"]);
});

test("rule 12: a handler without a response reports it, with the status and headers that it set", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain(""), plain("response.status = 404"), plain("response.headers.etag = 5")]);
  assert.deepEqual((({ flags, body }) => [flags, body])(await g.run(program, 0)), [4, undefined]);
  assert.deepEqual((({ flags, status, kind }) => [flags, status, kind])(await g.run(program, 1)), [1, 404, NONE]);
  assert.deepEqual((({ flags, status, headers }) => [flags, status, headers])(await g.run(program, 2)), [1, 0, { etag: "5" }]);
});

test("rule 13: the kind of body of a value", async (t) => {
  const values = {
    "'Zoë'": [TEXT, "Zoë"],
    "''": [TEXT, ""],
    "5": [JSON_TEXT, "5"],
    "false": [JSON_TEXT, "false"],
    "[1, {a: undefined, b: null}]": [JSON_TEXT, '[1,{"b":null}]'],
    "new Date(0)": [JSON_TEXT, '"1970-01-01T00:00:00.000Z"'],
    "new Uint8Array([0, 255])": [BYTES, new Uint8Array([0, 255])],
    "undefined": [NONE, undefined],
    "null": [NONE, undefined],
  };
  const g = await gateway(t);
  const program = await g.service(Object.keys(values).map((value) => plain(`$r.respond(${value})`)));
  for (const [index, expected] of Object.values(values).entries()) {
    const { kind, body, status } = await g.run(program, index);
    assert.deepEqual([kind, body, status], [...expected, 0]);
  }
});

test("rule 13: status responses, combined with `response`", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    plain("response.headers['x-a'] = 1; $r.answer(302, { Location: '/total/' + 7, 'set-cookie': ['a', 2], no: undefined })"),
    plain("response.status = 201; response.headers = { etag: 'x' }; $r.respond({ made: true })"),
    plain("$r.answer(418, {}, 'short and stout')"),
  ]);
  const redirect = await g.run(program, 0);
  assert.deepEqual([redirect.status, redirect.headers], [302, { "x-a": "1", Location: "/total/7", "set-cookie": ["a", "2"] }]);
  const made = await g.run(program, 1);
  assert.deepEqual([made.status, made.headers, made.body], [201, { etag: "x" }, '{"made":true}']);
  const teapot = await g.run(program, 2);
  assert.deepEqual([teapot.status, teapot.headers, teapot.body], [418, {}, "short and stout"]);
});

test("rule 13: the first `respond` is used, and the position of the second is reported", async (t) => {
  const g = await gateway(t);
  const pass = `$r.pass(2, $s.resource(["http://x/"]), 0, [])`;
  const program = await g.service([plain("$r.respond(1); $r.respond(2); $r.answer(500, {})"), async(`$r.respond(1); await ${pass}`)]);
  const end = await g.run(program);
  assert.equal(end.body, "1");
  const twice = (frames) => frames.filter(({ type }) => type === TWICE).map(({ stack }) => /test\.sjs:\d+:\d+/.exec(stack)?.[0]);
  const [second, third] = twice(end.frames);
  assert.match(second, /^test\.sjs:2:/);
  assert.notEqual(second, third, "each has its own position");
  const passed = await g.run(program, 1);
  assert.deepEqual(passed.frames.find(({ type }) => type === CALL).flags, 0, "the call is made, for the handler");
  assert.match(twice(passed.frames)[0], /^test\.sjs:3:/);
});

test("rule 13: the response of a continuing handler is sent at once", async (t) => {
  let go;
  const g = await gateway(t, { calls: () => new Promise((resolve) => (go = () => resolve({}))) });
  const program = await g.service([async(`const seen = [1]; $r.respond(seen); seen.push(2); await $r.call(1, $s.resource(["http://x/"]), 0, []); seen.push(3)`)]);
  const run = g.start_run(program);
  await g.ping();
  assert.deepEqual(run.frames.map(({ type }) => type), [CALL, ANSWER]);
  assert.equal(run.frames[1].body, "[1]", "as of the time of `respond`");
  go();
  assert.deepEqual(((end) => [end.type, end.flags])(await run.ended), [END, 0]);
});

test("rule 13: an invalid response is reported with its position", async (t) => {
  const values = {
    "(() => { const a = {}; a.b = [a]; return a })()": /a circle \(it contains itself\), at `b\[0\]`/,
    "({ list: [1, 2n] })": /a BigInt, at `list\[1\]`/,
    "7n": /can't be JSON: a BigInt \(/,
    "() => 1": /can't be JSON: a function \(/,
    "Symbol()": /can't be JSON: a symbol/,
    "({ toJSON() { throw new Error('mine') } })": /can't be JSON: mine/,
  };
  const g = await gateway(t);
  const program = await g.service([...Object.keys(values).map((value) => plain(`$r.respond(${value})`)), plain("try { $r.respond(1n) } catch {} $r.respond(2)")]);
  for (const [index, expected] of Object.values(values).entries()) {
    const fail = await g.run(program, index);
    assert.deepEqual([fail.type, fail.kind], [FAIL, 3]);
    assert.match(fail.message, expected);
  }
  assert.equal((await g.run(program, Object.keys(values).length)).body, "2");
});

test("rule 13: views and buffers are bytes, and objects whose JSON would be empty are refused", async (t) => {
  const sent = {
    "new Uint16Array([65])": [65, 0],
    "new Float32Array(1)": [0, 0, 0, 0],
    "new DataView(new Uint8Array([1, 2, 3]).buffer, 1)": [2, 3],
    "new Uint8Array([1, 2]).buffer": [1, 2],
    "new SharedArrayBuffer(1)": [0],
  };
  const refused = {
    "new Map([[1, 2]])": /a Map would be \{\}: send `Object\.fromEntries\(map\)` instead \(S rule 13\)$/,
    "{ tags: new Set([1]) }": /a Set at `tags` would be \{\}/,
    "[[1].values()]": /an iterator at `0` would be/,
    "(function* () { yield 1 })()": /an iterator would be/,
    "{ later: Promise.resolve(1) }": /a Promise at `later` would be/,
    "{ buffer: new ArrayBuffer(1) }": /an ArrayBuffer at `buffer` would be/,
    "[new DataView(new ArrayBuffer(1))]": /a DataView at `0` would be/,
    "new Error('no')": /an Error would be \{\}: send `error\.message` instead \(S rule 13\)$/,
    "{ answer: new Response('a') }": /a Response at `answer` would be/,
    "new Blob(['a'])": /a Blob would be/,
  };
  const g = await gateway(t, { calls: () => ({}) });
  if (!g.engine.startsWith("bun")) {
    // Bun converts these itself.
    refused["new Headers({ a: 'b' })"] = /a Headers would be \{\}: send `Object\.fromEntries\(headers\)`/;
    refused["[new FormData()]"] = /a FormData at `0` would be/;
  }
  const call = (value) => async(`await $r.call(1, $s.resource(["http://x/"]), 2, [${value}])`);
  const handlers = [...Object.keys(sent), ...Object.keys(refused)].flatMap((value) => [plain(`$r.respond(${value})`), call(value)]);
  const others = [
    plain("$r.respond({ text: JSON.stringify([new Map([[1, 2]]), new Set()]) })"),
    plain("$r.respond(new (class extends Map { toJSON() { return [...this] } })([[1, 2]]))"),
    plain("const own = new Set([1]); own.toJSON = () => 'own'; $r.respond([own])"),
    plain("$r.respond([new Error('no'), JSON.stringify([new Headers(), new Blob([])])])"),
    plain("$r.respond(Object.assign(new Error('no'), { status: 1 }))"),
    plain("$r.respond([new URLSearchParams('a=1')])"),
  ];
  const program = await g.service([...handlers, ...others]);
  let next = 0;
  for (const [value, bytes] of Object.entries(sent)) {
    const [answer, { frames }] = [await g.run(program, next++), await g.run(program, next++)];
    assert.deepEqual([answer.kind, [...answer.body]], [BYTES, bytes], value);
    assert.deepEqual([frames[0].kind, [...frames[0].body]], [BYTES, bytes], value);
  }
  for (const [value, message] of Object.entries(refused)) {
    const [answer, request] = [await g.run(program, next++), await g.run(program, next++)];
    assert.deepEqual([answer.type, answer.kind, request.type, request.kind], [FAIL, 3, FAIL, 0], value);
    assert.match(answer.message, message);
    assert.match(request.message, message);
    assert.match(request.message, /^TypeError: /);
  }
  const bodies = [];
  for (let i = 0; i < 5; i++) bodies.push((await g.run(program, next++)).body);
  assert.deepEqual(bodies, ['{"text":"[{},{}]"}', "[[1,2]]", '["own"]', '[{},"[{},{}]"]', '{"status":1}']);
  // Bun has a conversion of its own.
  assert.notEqual((await g.run(program, next)).body, "[{}]");
});

test("rule 14: `query` contains parameters, then members of the body, and properties of the request", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    plain("$r.respond([query, query.$method, query.$path, query.$headers, query.$body])"),
    plain("$r.respond([typeof query.toString, query.__proto__ === undefined, 'constructor' in query, query instanceof Object, Object.keys(query)])"),
  ]);
  const body = { kind: JSON_TEXT, content: '{"a":1,"b":{"c":"é"},"$path":"no"}' };
  const options = { method: METHODS.PUT, path: "/é", query: { a: "x", list: ["1", "2"] }, headers: { accept: "*/*" }, body };
  const all = JSON.parse((await g.run(program, 0, options)).body);
  const merged = { a: "x", list: ["1", "2"], b: { c: "é" } };
  assert.deepEqual(all, [merged, "PUT", "/é", { accept: "*/*" }, JSON.parse(body.content)]);
  const bare = await g.run(program, 1, { query: { toString: "x", $method: "y" } });
  assert.equal(bare.body, '["string",true,false,false,["toString"]]');
});

test("rule 14: kinds of bodies", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("$r.respond([Object.prototype.toString.call(query.$body), query.$body])")]);
  const bodyOf = async (kind, content) => JSON.parse((await g.run(program, 0, { body: { kind, content } })).body);
  assert.deepEqual(await bodyOf(TEXT, "é"), ["[object String]", "é"]);
  assert.deepEqual(await bodyOf(ASCII, "e"), ["[object String]", "e"]);
  assert.deepEqual(await bodyOf(JSON_ASCII, "[1]"), ["[object Array]", [1]]);
  assert.deepEqual(await bodyOf(BYTES, new Uint8Array([1, 2])), ["[object Uint8Array]", { 0: 1, 1: 2 }]);
  assert.deepEqual(await bodyOf(NONE), ["[object Undefined]", null]);
  const fail = await g.run(program, 0, { body: { kind: JSON_TEXT, content: "{" } });
  assert.deepEqual([fail.kind, fail.status], [5, 400]);
  assert.match(fail.message, /^the request's body is not the JSON that its type claims/);
});

test("rule 14: parameters of internal calls keep their types", async (t) => {
  const g = await gateway(t);
  const calls = [
    [`["/red/", { v: 7 }, "?count=", ""], [3]`, "/red/7", { count: 3 }],
    [`["/map?url=", "&key=", "&list[]=", "&list=", ""], ["a&b", null, 1, [2, 3]]`, "/map", { url: "a&b", key: null, list: [1, 2, 3] }],
    [`["/a/", "/b?x=p", "&y=1%202&z"], ["é ", true]`, "/a/%C3%A9%20/b", { x: "ptrue", y: "1 2", z: "" }],
    [`["/a?", "=", "&b=", { v: "q&c=r@s" }, "#x"], ["name", { deep: [1] }]`, "/a", { name: { deep: [1] }, b: "q", c: "r@s" }],
    [`["/a?x=", "&y=", ""], [undefined, $r.cells.s]`, "/a", { y: { n: 1 } }],
    [`["/a"], []`, "/a", undefined],
  ];
  const handlers = calls.map(([text]) => async(`const parts = [${text}]; await $r.call(1, $s.resource(parts[0]), 3, parts[1])`, ["s"]));
  const program = await g.service(handlers);
  g.state(1, 1, 0, { n: 1 });
  for (const [index, [, url, query]] of calls.entries()) {
    const end = await g.run(program, index, one([1], 1));
    assert.equal(end.message, undefined);
    const call = end.frames[0];
    assert.deepEqual([call.url, call.query && JSON.parse(call.query)], [url, query ?? ""]);
  }
});

test("rule 15: templates are filled from left to right, and only literals have holes", async (t) => {
  const g = await gateway(t);
  const handlers = [
    [`["http://x/", "?q=", ""]`, 0, `["a b", "é@"]`],
    [`[{ v: query.url }]`, 0, "[]"],
    [`[{ v: query.url }, "&q=", ""]`, 0, "[1]"],
    [`["http://x/a@b"]`, 2, `[{ a: 1 }]`],
    [`["http://x/"]`, 3, `["text"]`],
    [`["//x/", "?a=", ""]`, 0, `[1, 2]`],
  ];
  const program = await g.service(handlers.map(([pieces, method, all]) => async(`await $r.call(1, $s.resource(${pieces}), ${method}, ${all})`)));
  const sent = [];
  for (const index of handlers.keys()) {
    const { frames } = await g.run(program, index, { query: { url: "http://u/?mail=a@b" } });
    sent.push([frames[0].url, frames[0].method, frames[0].kind, frames[0].body]);
  }
  assert.deepEqual(sent, [
    ["http://x/a%20b?q=%C3%A9%40", 0, NONE, undefined],
    ["http://u/?mail=a@b", 0, NONE, undefined],
    ["http://u/?mail=a@b&q=1", 0, NONE, undefined],
    ["http://x/a@b", 2, JSON_TEXT, '{"a":1}'],
    ["http://x/", 3, TEXT, "text"],
    ["//x/1?a=2", 0, NONE, undefined],
  ]);
});

/**
 * Values with their expansion in a path (null if they are refused) and in a query; also used by the tests of
 * inline_evaluation.rs.
 */
const holes = JSON.parse(readFileSync(new URL("holes.json", import.meta.url), "utf8"));

test("rule 15: a hole in a path takes a segment, and an absent value is empty in a query", async (t) => {
  const g = await gateway(t, { calls: () => ({}) });
  const call = (pieces, method) => async(`await $r.call(9, $s.resource(${pieces}), ${method}, [query.value]); $r.respond("called")`);
  const pass = async(`return $r.pass(9, $s.resource(["http://x/items/", ""]), 0, [query.value])`);
  const caught = async(`try { await $r.call(9, $s.resource(["/items/", ""]), 0, [query.value]) } catch (e) { $r.respond([e.name, e.status, e.message]) }`);
  const program = await g.service([call(`["http://x/items/", ""]`, 5), call(`["/items/", "?a=1"]`, 5), call(`["http://x/items?q=", ""]`, 0), pass, caught]);
  for (const { value, path, query } of [{ query: "" }, ...holes]) {
    const name = JSON.stringify(value);
    const body = { kind: JSON_TEXT, content: JSON.stringify({ value }) };
    const run = (handler) => g.run(program, handler, { body });
    for (const [handler, base] of [[0, "http://x/items/"], [1, "/items/"], [3, "http://x/items/"]]) {
      const { frames, kind, site, status } = await run(handler);
      if (typeof path === "string") assert.equal(frames[0].url, base + path, name);
      else assert.deepEqual([frames.length, kind, site, status], [1, 1, 9, 403], `${name} is refused without a call`);
    }
    assert.equal((await run(2)).frames[0].url, `http://x/items?q=${query}`, name);
  }
  assert.deepEqual(JSON.parse((await g.run(program, 4)).body), [
    "ResourceError",
    403,
    "argument 1 of '/items/@' can't be a segment of a path: not empty, no `.` or `..`, no slash, backslash or control character (S rule 15)",
  ]);
});

test("rule 15: a change has no absent value in its query", async (t) => {
  const g = await gateway(t, { calls: () => ({}) });
  const methods = [2, 3, 4, 5];
  const program = await g.service(methods.map((method) => async(`await $r.call(9, $s.resource(["http://x/items?q=", ""]), ${method}, [query.value]); $r.respond("called")`)));
  for (const handler of methods.keys()) {
    const run = (value) => g.run(program, handler, { body: { kind: JSON_TEXT, content: JSON.stringify({ value }) } });
    for (const value of [undefined, null, [], [""], [null], ["", ""], ["a", ""]]) {
      const { frames, kind, site, status } = await run(value);
      assert.deepEqual([frames.length, kind, site, status], [1, 1, 9, 403], `${JSON.stringify(value)} is refused without a call`);
    }
    for (const [value, query] of [["", ""], [0, "0"], [false, "false"], [["a", 1], "a%2C1"]]) {
      assert.equal((await run(value)).frames[0].url, `http://x/items?q=${query}`);
    }
  }
});

test("rule 15: too few or too many arguments, and parts that are not text", async (t) => {
  const g = await gateway(t);
  const call = (pieces, method, all) => async(`await $r.call(1, $s.resource(${pieces}), ${method}, ${all})`);
  const program = await g.service([
    call(`["http://x/a@b", "?q=", ""]`, 0, "[1]"),
    call(`["http://x/", ""]`, 0, "[1, 2]"),
    call(`["http://x/", ""]`, 2, "[1, 2, 3]"),
    call(`[{ v: query.url }]`, 0, "[]"),
    async("await $r.call(1, { url: 'http://x/' }, 0, [])"),
  ]);
  const messages = [];
  for (let i = 0; i < 5; i++) messages.push((await g.run(program, i)).message);
  assert.deepEqual(messages, [
    "TypeError: get of 'http://x/a@@b@?q=@' needs 2 arguments, one for each @; it has 1 (S rule 15)",
    "TypeError: get of 'http://x/@' needs 1 argument, one for each @; it has 2 (S rule 15)",
    "TypeError: post of 'http://x/@' needs 1 argument, one for each @, and may have one more, the body; it has 3 (S rule 15)",
    "TypeError: a part of a resource's URL is undefined, not text (S rule 15)",
    "TypeError: only a resource can be called (S rule 15)",
  ]);
});

test("rule 16: results of calls", async (t) => {
  const answers = {
    "http://text/": { kind: TEXT, content: "é" },
    "http://ascii/": { kind: ASCII, content: "e" },
    "http://json/": { kind: JSON_TEXT, content: '{"é":1}' },
    "http://bytes/": { kind: BYTES, content: new Uint8Array([1]) },
    "http://none/": {},
  };
  const g = await gateway(t, { calls: ({ url }) => answers[url] });
  const program = await g.service([async(`const value = await $r.call(1, $s.resource([{ v: query.url }]), 0, []); $r.respond([Object.prototype.toString.call(value), value])`)]);
  const got = [];
  for (const url of Object.keys(answers)) got.push((await g.run(program, 0, { query: { url } })).body);
  assert.deepEqual(got, [
    '["[object String]","é"]',
    '["[object String]","e"]',
    '["[object Object]",{"é":1}]',
    '["[object Uint8Array]",{"0":1}]',
    '["[object Undefined]",null]',
  ]);
});

test("rule 16: a failed call throws a ResourceError, and an uncaught one is reported with its call site", async (t) => {
  const answers = {
    "http://status/": { outcome: 1, status: 404, headers: '{"x":"y"}', message: "404 from http://status/", kind: JSON_TEXT, content: '{"code":1}' },
    "http://down/": { outcome: 2, status: 502, message: "connection refused" },
    "http://self/": { outcome: 4, status: 508, message: "it holds what it asks for" },
    "http://liar/": { kind: JSON_ASCII, content: "<p>" },
    "http://empty/": { kind: JSON_ASCII, content: "" },
    "http://error/": { outcome: 1, status: 404, message: "404 from http://error/", kind: JSON_ASCII, content: "<p>" },
  };
  const g = await gateway(t, { calls: ({ url }) => answers[url] });
  const call = "await $r.call(6, $s.resource([{ v: query.url }]), 0, [])";
  const program = await g.service([
    async(`try { ${call} } catch (e) { $r.respond([e instanceof ResourceError, e.name, e.status, e.headers, e.body, e.message]) }`),
    async(call),
  ]);
  const caught = async (url) => JSON.parse((await g.run(program, 0, { query: { url } })).body);
  assert.deepEqual(await caught("http://status/"), [true, "ResourceError", 404, { x: "y" }, { code: 1 }, "404 from http://status/"]);
  assert.deepEqual(await caught("http://down/"), [true, "ResourceError", 502, {}, null, "connection refused"]);
  assert.deepEqual((await caught("http://self/")).slice(0, 3), [true, "ResourceError", 508]);
  const liar = (await caught("http://liar/")).slice(0, 5);
  assert.deepEqual(liar, [true, "ResourceError", 502, {}, "<p>"], "a handler can read the invalid body");
  assert.deepEqual((await caught("http://empty/")).slice(0, 5), [true, "ResourceError", 502, {}, ""]);
  assert.deepEqual((await caught("http://error/")).slice(2, 5), [404, {}, "<p>"], "the call had failed before");
  const uncaught = await g.run(program, 1, { query: { url: "http://liar/" } });
  assert.deepEqual([uncaught.type, uncaught.kind, uncaught.site, uncaught.status], [FAIL, 1, 6, 502]);
  assert.match(uncaught.message, /^the answer is not the JSON that its type claims: /);
  const fail = await g.run(program, 1, { query: { url: "http://status/" } });
  assert.deepEqual([fail.kind, fail.site, fail.status, fail.message], [1, 6, 404, "404 from http://status/"]);
});

test("rule 16: a bare call is passed through, and its response never reaches the worker", async (t) => {
  const outcomes = [{ outcome: 3 }, { outcome: 2, status: 504, message: "too late" }, { kind: TEXT, content: "own" }];
  const g = await gateway(t, { calls: ({ flags }) => (assert.equal(flags, 1), outcomes.shift()) });
  const program = await g.service([async(`return $r.pass(2, $s.resource(["http://x/"]), 0, [])`)]);
  assert.deepEqual((({ type, flags }) => [type, flags])(await g.run(program)), [END, 0]);
  assert.deepEqual((({ type, kind, status }) => [type, kind, status])(await g.run(program)), [FAIL, 1, 504]);
  assert.deepEqual((({ type, flags, body }) => [type, flags, body])(await g.run(program)), [END, 1, "own"]);
});

test("rule 18: units of a `par` overlap, and their calls are sent in program order", async (t) => {
  const waiting = [];
  const g = await gateway(t, { calls: ({ url }) => new Promise((resolve) => waiting.push([url, resolve])) });
  const call = (name) => `await $r.call(1, $s.resource(["http://${name}/"]), 0, [])`;
  const program = await g.service([
    async(`let a, b, c; await $r.par([[], async () => { a = ${call("a")} }], [[], async () => { b = ${call("b")} }], [[0], async () => { c = ${call("c")} }], [[1, 2], async () => { $r.respond([a, b, c]) }])`),
  ]);
  const run = g.start_run(program);
  await g.ping();
  assert.deepEqual(waiting.map(([url]) => url), ["http://a/", "http://b/"]);
  waiting[0][1]({ kind: TEXT, content: "A" });
  while (waiting.length < 3) await g.ping();
  waiting[2][1]({ kind: TEXT, content: "C" });
  waiting[1][1]({ kind: TEXT, content: "B" });
  assert.equal((await run.ended).body, '["A","B","C"]');
});

test("rule 19: the concurrency of a `pfor` is limited by the setting of the gateway", async (t) => {
  const waiting = [];
  const g = await gateway(t, { calls: ({ url }) => new Promise((resolve) => waiting.push([url, resolve])) });
  const body = `async (i) => { out[i] = await $r.call(1, $s.resource(["http://x/", ""]), 0, [i]) }`;
  const program = await g.service([async(`const out = {}; await $r.pfor([1, 2, 3, 4, 5], ${body}); $r.respond(out)`)], { settings: { pfor: 2 } });
  const run = g.start_run(program);
  await g.ping();
  for (let done = 0; done < 5; done++) {
    while (waiting.length < Math.min(done + 2, 5)) await g.ping();
    await g.ping();
    assert.equal(waiting.length, Math.min(done + 2, 5));
    waiting[done][1]({ kind: TEXT, content: waiting[done][0] });
  }
  assert.equal((await run.ended).body, JSON.stringify(Object.fromEntries([0, 1, 2, 3, 4].map((i) => [i, `http://x/${i}`]))));
});
