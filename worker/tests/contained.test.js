// Faults of handlers are contained: the run fails or is ended, and other runs in the worker continue.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { ANSWER, BYTES, END, FAIL, JSON_TEXT, TEXT } from "../frames.js";
import { ENGINE, METHODS, gateway } from "./gateway.js";

const plain = (body, cells) => ({ code: `function (query, response, $r) { ${body} }`, cells });
const async = (body, cells) => ({ code: `async function (query, response, $r) { ${body} }`, cells });
const hello = plain("$r.respond('hello')");
const call = `$r.call(1, $s.resource(["http://x/"]), 0, [])`;

/** A handler that damages its worker once its run has ended. */
const damagesLater = plain("(async () => { await 0; delete Object.getPrototypeOf([])[query.name] })(); $r.respond('done')");

/** Returns the program and the handler of each report of damage after a run. */
const damaged = (g) => g.damages.map(({ run, handler }) => [run, handler]);

/** Asserts that the worker still responds. */
async function lives(g, program, handler = 0) {
  assert.equal((await g.run(program, handler)).body, "hello");
}

test("any thrown value yields a readable message", async (t) => {
  const thrown = {
    "new Error('plain')": /^Error: plain$/,
    "'a text'": /^thrown: 'a text'$/,
    "{ code: 7 }": /^thrown: \{ code: 7 \}$/,
    "null": /^thrown: null$/,
    "undefined": /^thrown: undefined$/,
    "Object.create(null)": /^thrown: \[Object: null prototype\]/,
    "Object.assign(new Error('x'), { get message() { return 1 }, stack: 5 })": /^Error: /,
    "Object.defineProperty(new Error('x'), 'stack', { get() { throw 1 } })": /^the thrown value can't be inspected$/,
    "new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })": /can't be inspected|thrown: /,
    "Object.assign(new Error('x'), { name: Symbol() })": /can't be inspected|Error/,
    "new Proxy(new ResourceError('x'), { get: (it, key) => typeof key === 'symbol' ? { valueOf: 1, toString: 1 } : it[key] })": /can't be inspected/,
  };
  const g = await gateway(t);
  const program = await g.service([hello, ...Object.keys(thrown).flatMap((value) => [plain(`throw ${value}`), async(`await ${call}; throw ${value}`)])]);
  for (const [index, expected] of Object.values(thrown).entries()) {
    for (const handler of [1 + 2 * index, 2 + 2 * index]) {
      const fail = await g.run(program, handler);
      assert.deepEqual([fail.type, fail.kind], [FAIL, 0]);
      assert.match(fail.message, expected);
    }
  }
  await lives(g, program);
});

test("an invalid status or header from a request fails only its own run, in synchronous and asynchronous handlers", async (t) => {
  const g = await gateway(t, { calls: () => ({ kind: TEXT, content: "x" }) });
  const sets = ["response.status = query.v; $r.respond('x')", "response.status = query.v", "$r.answer(query.v, {}, 'x')"];
  const headers = ["response.headers.a = query.v; $r.respond('x')", "response.headers.a = query.v", "$r.answer(200, { a: query.v }, 'x')"];
  const variants = (bodies) => bodies.flatMap((body) => [plain(body), async(`${body}; await ${call}`), async(`await ${call}; ${body}`)]);
  const program = await g.service([hello, ...variants(sets), ...variants(headers)]);
  const failed = async (handler, v, kind) => {
    const end = await g.run(program, handler, { method: METHODS.POST, body: { kind: JSON_TEXT, content: JSON.stringify({ v }) } });
    assert.deepEqual([end.type, end.kind], [FAIL, kind], `${handler}: ${JSON.stringify(v)}`);
    await lives(g, program);
  };
  for (let handler = 1; handler <= 9; handler++) {
    for (const v of [{ valueOf: 1, toString: 1 }, {}, [404], true, "", "abc", "4e9", 0, 199, 1000, 404.5, -404, 65_940]) {
      await failed(handler, v, 3);
    }
  }
  for (let handler = 10; handler <= 18; handler++) await failed(handler, { valueOf: 1, toString: 1 }, 0);
  assert.deepEqual(g.logs, []);
});

test("an answer that can't be written fails only its own run", async (t) => {
  const g = await gateway(t, { calls: () => new Promise(() => {}) });
  const headers = "response.headers = { toJSON: Object.assign([], { map: () => () => undefined }) }; $r.respond('x')";
  const program = await g.service([hello, async(`$r.respond("early"); await ${call}`), async(`${headers}; await ${call}`), plain(headers)]);
  let runs;
  g.together(() => (runs = [1, 2, 3, 1].map((handler) => g.start_run(program, handler))));
  for (const run of [runs[1], runs[2]]) assert.deepEqual([(await run.ended).type, (await run.ended).kind], [FAIL, 0]);
  await lives(g, program);
  for (const { frames } of [runs[0], runs[3]]) assert.equal(frames.find(({ type }) => type === ANSWER)?.body, "early");
});

test("a byte array is sent with its content at the time of `respond`, ignoring overridden members", async (t) => {
  const g = await gateway(t);
  const bytes = {
    "new Uint8Array([1, 2])": [BYTES, [1, 2]],
    "Buffer.from('ab')": [BYTES, [97, 98]],
    "new Uint8Array([1, 2, 3]).subarray(1)": [BYTES, [2, 3]],
    "new (class extends Uint8Array { get length() { throw new Error('no') } })(2)": [BYTES, [0, 0]],
    "new (class extends Uint8Array { get byteLength() { return 1e9 } get buffer() { return null } })(2)": [BYTES, [0, 0]],
    "{ __proto__: new Uint8Array(2) }": [JSON_TEXT, "{}"],
    "Object.create(Uint8Array.prototype)": [JSON_TEXT, "{}"],
    "new Proxy(new Uint8Array(2), {})": [JSON_TEXT, '{"0":0,"1":0}'],
  };
  const values = Object.keys(bytes);
  const program = await g.service([hello, ...values.flatMap((value) => [plain(`$r.respond(${value})`), async(`$r.respond(${value}); await null`)])]);
  for (const [index, [kind, content]] of Object.values(bytes).entries()) {
    for (const handler of [1 + 2 * index, 2 + 2 * index]) {
      const end = await g.run(program, handler);
      const answer = end.frames.find(({ type }) => type === ANSWER) ?? end;
      assert.deepEqual([answer.kind, typeof content === "string" ? answer.body : [...answer.body]], [kind, content], values[index]);
      await lives(g, program);
    }
  }
  const later = await g.service([plain("const b = new Uint8Array([1]); $r.respond(b); b[0] = 2")]);
  assert.deepEqual([...(await g.run(later)).body], [1]);
});

test("a stack contains only lines of the script", async (t) => {
  const g = await gateway(t);
  const program = await g.service([async(`\n\n await ${call};\n deep(query)`)], { helpers: "const deep = (q) => q.no.where;", name: "deep.sjs" });
  const { stack } = await g.run(program);
  const [, line] = /deep\.sjs:(\d+):\d+/.exec(stack);
  assert.equal(line, "1", "the helper's line comes first");
  assert.match(stack, /deep\.sjs:5:\d+/);
  assert.doesNotMatch(stack, /worker\.js/);
});

test("a pending promise does not block other runs", async (t) => {
  const g = await gateway(t);
  const program = await g.service([hello, async("await new Promise(() => {})")]);
  const run = g.start_run(program, 1);
  await lives(g, program);
  g.cancel(run.id);
  assert.deepEqual((({ type, flags }) => [type, flags])(await run.ended), [END, 4]);
});

test("rule 4: a run whose client disconnects ends without executing further code; a writer continues", async (t) => {
  const waiting = [];
  const g = await gateway(t, { calls: () => new Promise((resolve) => waiting.push(() => resolve({}))) });
  const program = await g.service([
    hello,
    async(`try { await ${call} } catch { console.log("caught") } finally { console.log("finally") }; await ${call}`),
    async(`$r.cells.n = 1; await ${call}; $r.respond("written")`, ["n"]),
  ]);
  const reader = g.start_run(program, 1);
  const writer = g.start_run(program, 2, { cells: [1], writer: true });
  await g.ping();
  g.cancel(reader.id);
  g.cancel(writer.id);
  assert.equal((await reader.ended).flags, 4);
  waiting.forEach((go) => go());
  assert.equal((await writer.ended).body, "written");
  await g.ping();
  assert.equal(waiting.length, 2, "the cancelled run makes no further call");
  assert.deepEqual(g.logs, []);
});

test("a cancelled writer is rolled back and sends no further frames", async (t) => {
  const waiting = [];
  const g = await gateway(t, { calls: () => new Promise((resolve) => waiting.push(() => resolve({}))) });
  const program = await g.service([
    async(`$r.cells.list.push(2); $r.respond("early"); await ${call}; $r.cells.list.push(3); console.log("on")`, ["list"]),
    plain("$r.cells.list.push(4); $r.respond($r.cells.list)", ["list"]),
  ]);
  g.state(1, 1, 0, [1]);
  const run = g.start_run(program, 0, { cells: [1], version: 1, writer: true });
  await g.ping();
  const before = run.frames.length;
  g.cancel(run.id, 1);
  waiting.forEach((go) => go());
  const next = await g.run(program, 1, { cells: [1], version: 1, writer: true });
  assert.deepEqual([next.body, next.changes], ["[1,4]", "[[0,[1],4]]"]);
  assert.deepEqual([run.frames.length, g.logs], [before, []]);
});

test("a handler that tries to end or crash the process fails", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    hello,
    plain("globalThis.process.exit(3)"),
    plain("globalThis.process.abort()"),
    plain("globalThis.process.kill(globalThis.process.pid)"),
    plain("globalThis.process.chdir('/')"),
    plain("(function again() { again() })()"),
    async(`Promise.reject(new Error("dropped")); await new Promise(() => {})`),
    async(`setTimeout(() => { throw new Error("in a timer") }); await new Promise(() => {})`),
  ]);
  for (const handler of [1, 2, 3, 4]) assert.match((await g.run(program, handler)).message, /can't be called by a handler$/);
  assert.match((await g.run(program, 5)).message, /^RangeError: Maximum call stack size exceeded/);
  const dropped = await g.run(program, 6);
  assert.deepEqual([dropped.type, dropped.message], [FAIL, "Error: dropped"]);
  const timer = await g.run(program, 7);
  assert.deepEqual([timer.type, timer.message], [FAIL, "Error: in a timer"]);
  const said = g.logs.map(({ run, level, text }) => [run, level, text.split("\n")[0].split(":")[0]]);
  assert.deepEqual(said, [
    [dropped.run, 3, "unhandled rejection of a promise"],
    [timer.run, 3, "uncaught error"],
  ]);
  await lives(g, program);
});

test("the console goes to the log, with the run and the level", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    async(`console.log("a %s", "b", { c: [1] }); await ${call}; console.error($r.cells.list); setTimeout(() => { console.warn("later"); $r.respond(1) }); await new Promise(() => {})`, ["list"]),
    plain("$r.cells.list.push(2)", ["list"]),
  ]);
  g.state(1, 1, 0, [1]);
  const run = g.start_run(program, 0, { cells: [1], version: 1 });
  await g.run(program, 1, { cells: [1], version: 1, writer: true });
  while (g.logs.length < 3) await g.ping();
  assert.deepEqual(g.logs.map(({ run, level, text }) => [run, level, text]), [
    [run.id, 1, "a b { c: [ 1 ] }"],
    [run.id, 3, "[ 1 ]"],
    [run.id, 2, "later"],
  ]);
});

test("the watchdog reports the run that blocks the event loop, even if several runs are resumed together", async (t) => {
  const calls = [];
  const g = await gateway(t, { calls: (frame) => void calls.push(frame) });
  const spin = "for (;;);";
  const program = await g.service([
    async(`const help = async () => { await ${call} }; await help(); await null; await null; if (query.spin) ${spin}; $r.respond("hello")`),
  ]);
  const runs = [{}, { spin: 1 }, {}].map((query) => g.start_run(program, 0, { query }));
  while (calls.length < 3) await g.ping();
  const stuck = new Promise((resolve) => (g.onstuck = (frame) => frame.ms >= 200 && resolve(frame)));
  g.together(() => calls.forEach(({ run, call }) => g.done(run, call)));
  assert.equal((await stuck).run, runs[1].id);
});

test("a worker ends with its gateway, even while it is busy", async (t) => {
  const g = await gateway(t);
  const program = await g.service([plain("for (;;);")], { settings: { stuck: 20 } });
  const stuck = new Promise((resolve) => (g.onstuck = resolve));
  const run = g.start_run(program);
  assert.equal((await stuck).run, run.id);
  await g.close({ kill: false });
});

test("changes of prototypes by a handler don't break the worker", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    async(`const { n } = await ${call} ?? { n: 1 }; $r.cells.list.push(n); delete $r.cells.map.a; $r.respond({ list: $r.cells.list, q: query })`, ["list", "map"]),
    plain(`
      for (const name of ["polluted", "get", "set", "value", "writable", "status", "headers", "path", "then", "length", "0", "toJSON", "kind", "toString"]) {
        for (const { prototype } of [Object, Array, Function, String]) try { prototype[name] = "everywhere" } catch {}
      }
      $r.respond("done")`),
  ]);
  g.state(1, 1, 0, [1]);
  g.state(2, 1, 0, { a: 1 });
  const writer = (version) => g.run(program, 0, { cells: [1, 2], version, writer: true, query: { a: "b" } });
  const before = await writer(1);
  assert.equal((await g.run(program, 1)).body, "done");
  const again = await g.service([plain("$r.respond([Object.entries($r.cells.map), query])", ["map"])]);
  const after = await writer(2);
  assert.equal((await g.run(again, 0, { cells: [2], version: 3 })).body, "[[],{}]");
  assert.deepEqual([before.body, after.body, after.message], ['{"list":[1,1],"q":{"a":"b"}}', '{"list":[1,1,1],"q":{"a":"b"}}', undefined]);
});

/** The objects that handlers share, by the values whose members lead to them. */
const SHARED = `[{}, [], "", 0, true, 0n, Symbol.iterator, () => {}, async () => {}].flatMap((value) => {
  const prototype = Object.getPrototypeOf(Object(value));
  return [prototype, prototype.constructor];
})`;

test("member names from a request can't change what all handlers share, and no write is lost", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    plain("($r.cells.tree[query.a] ??= {})[query.b] = query.v", ["tree"]),
    plain("($r.cells.tree[query.a] ??= [])[query.b] = query.v", ["tree"]),
    plain("(($r.cells.tree[query.a] ??= {})[query.b] ??= {})[query.c] = query.v", ["tree"]),
    plain("(($r.cells.tree[query.a] ??= [])[query.b] ??= {})[query.c] = query.v", ["tree"]),
    plain("((($r.cells.tree[query.a] ??= {})[query.b] ??= {})[query.c] ??= {})[query.d] = query.v", ["tree"]),
    plain("((($r.cells.tree[query.a] ??= [])[query.b] ??= {})[query.c] ??= {})[query.d] = query.v", ["tree"]),
    plain("delete (($r.cells.tree[query.a] ??= {})[query.b] ??= {})[query.c]", ["tree"]),
    plain(`
      const members = (object) => Object.entries(Object.getOwnPropertyDescriptors(object)).sort(([a], [b]) => (a < b ? -1 : 1));
      const described = (value) => (typeof value === "function" ? [value.name, Object.getOwnPropertyNames(value)] : typeof value);
      $r.respond(${SHARED}.map((object) => [
        Object.getPrototypeOf(object) === Object.prototype,
        members(object).map(([name, { value, get, set, ...rest }]) => [name, ...[value, get, set].map(described), rest]),
      ]))`),
  ]);
  const shape = async () => (await g.run(program, 7)).body;
  const names = [...new Set([Object, Array, Function].flatMap((type) => [type, type.prototype]).flatMap(Object.getOwnPropertyNames))];
  const before = await shape();
  assert.ok(before.length > 5000);
  let cell = 0;
  const write = async (handler, path, v) => {
    g.state(++cell, 1, 0, {});
    const [b, c, d] = path;
    const body = { kind: JSON_TEXT, content: JSON.stringify({ a: "new", b, c, d, v }) };
    const end = await g.run(program, handler, { cells: [cell], version: 1, writer: true, method: METHODS.PUT, body });
    if (end.type === FAIL) return assert.ok([0, 2].includes(end.kind), end.message);
    let stored = JSON.parse(end.changes)[0][2];
    for (const name of path) stored = Object.hasOwn(stored, name) ? stored[name] : "nothing";
    assert.deepEqual(stored, v, `${handler}: ${path} is lost`);
  };
  for (const name of [...names, "foo", "0"]) {
    for (const v of ["YES", null, { deep: 1 }]) {
      await write(0, [name], v);
      if (name !== "length") await write(1, [name], v);
      // `length = null` is `length = 0`, which the prototype of arrays has already.
      const isKept = name === "length" && v === null;
      for (const b of ["__proto__", "constructor", "toString", "map", "length", "foo"]) {
        for (const handler of isKept ? [2] : [2, 3]) await write(handler, [b, name], v);
      }
      for (const b of ["constructor", "__proto__"]) {
        for (const handler of isKept ? [4] : [4, 5]) await write(handler, [b, "prototype", name], v);
      }
    }
    assert.equal(await shape(), before, name);
  }
  for (const c of ["keys", "foo"]) await g.run(program, 6, { cells: [1], version: 2, writer: true, query: { a: "b", b: "constructor", c } });
  assert.equal(await shape(), before);
  g.state(++cell, 1, 0, {});
  const query = { a: "new", b: "constructor", c: "foo", v: "YES" };
  const fail = await g.run(program, 2, { cells: [cell], version: 1, writer: true, query });
  assert.deepEqual([fail.type, fail.kind, /^TypeError: .*extensible/.test(fail.message)], [FAIL, 0, true], fail.message);
});

test("a constructor of arrays that a handler changes is restored before another one runs", async (t) => {
  const g = await gateway(t, { calls: () => new Promise(() => {}) });
  const change = "[][query.b].prototype[query.b] = 'odd'";
  const program = await g.service([
    plain(`${change}; $r.respond("done")`),
    async(`${change}; await ${call}`),
    async(`try { ${change}; await ${call} } catch {}; $r.respond("done")`),
    plain("$r.respond([[].constructor === Array, [1].map((n) => n + 1)])"),
  ]);
  for (const handler of [0, 1, 2]) {
    const fail = await g.run(program, handler, { query: { b: "constructor" } });
    assert.equal(fail.message, "TypeError: `constructor` of Array.prototype can't be changed: all handlers share it (S rule 21)");
    assert.equal((await g.run(program, 3)).body, "[true,[2]]");
  }
});

test("a length that a handler gives the prototype of arrays is reset, and older subclasses have lengths of their own", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    plain("Object.getPrototypeOf([])[query.name] = 7; $r.respond('done')"),
    plain(`
      function List() {}
      List.prototype = Object.create(Array.prototype);
      const list = new List();
      list.push("a", "b");
      $r.respond([list.length, list[1], [].length, Array.prototype.length])`),
  ]);
  const fail = await g.run(program, 0, { query: { name: "length" } });
  assert.equal(fail.message, "TypeError: `length` of Array.prototype can't be changed: all handlers share it (S rule 21)");
  assert.equal((await g.run(program, 1)).body, '[2,"b",0,0]');
});

test("a worker whose constructor of arrays a handler deletes fails the run and ends", async (t) => {
  for (const wait of ["", `await ${call}`]) {
    const g = await gateway(t);
    const program = await g.service([async(`delete Object.getPrototypeOf([])[query.name]; ${wait}; $r.respond("done")`), plain("$r.respond('other')")]);
    const runs = [];
    g.together(() => {
      runs.push(g.run(program, 0, { query: { name: "constructor" } }));
      g.start_run(program, 1);
    });
    const fail = await runs[0];
    assert.equal(fail.message, "TypeError: `constructor` of Array.prototype can't be changed: all handlers share it (S rule 21)");
    assert.deepEqual((await g.exited).slice(0, 2), [0, null]);
  }
});

test("a run that damages its worker is reported as the cause, whatever it throws, behind the responses of others", async (t) => {
  const damage = "delete Object.getPrototypeOf([])[query.name]";
  for (const handler of [plain(damage), plain(`${damage}; throw 1`), async(`$r.respond("done"); ${damage}; await ${call}`)]) {
    const g = await gateway(t, { calls: () => undefined });
    const program = await g.service([handler, async(`$r.respond("early"); await ${call}`)]);
    const runs = [];
    g.together(() => {
      runs.push(g.start_run(program, 1));
      runs.push(g.start_run(program, 0, { query: { name: "constructor" } }));
    });
    const [other, culprit] = runs;
    const fail = await culprit.ended;
    assert.deepEqual([fail.type, fail.kind], [FAIL, 7]);
    assert.ok(!culprit.frames.some(({ type }) => type === ANSWER));
    assert.deepEqual(other.frames.filter(({ type }) => type === ANSWER).map(({ body }) => body), ["early"]);
    await g.exited;
    assert.deepEqual(g.damages, [], "reported once");
  }
});

test("damage by code of a run that has ended is not reported as that of the next run, which does not begin", async (t) => {
  const g = await gateway(t);
  const program = await g.service([hello, plain("console.log('began'); $r.respond('other')"), damagesLater]);
  assert.equal((await g.run(program, 2, { query: { name: "constructor" } })).body, "done");
  const next = g.start_run(program, 1);
  assert.deepEqual((await g.exited).slice(0, 2), [0, null]);
  assert.deepEqual([next.frames, g.logs, damaged(g)], [[], [], [[program, 2]]]);
});

test("damage in a timer of a run that has ended is reported for its handler", async (t) => {
  const g = await gateway(t);
  const later = plain("setTimeout(() => { delete Object.getPrototypeOf([])[query.name] }, 0); $r.respond('done')");
  const program = await g.service([hello, later]);
  assert.equal((await g.run(program, 1, { query: { name: "constructor" } })).body, "done");
  assert.deepEqual((await g.exited).slice(0, 2), [0, null]);
  assert.deepEqual(damaged(g), [[program, 1]]);
});

test("damage by code of a run that has ended is reported before the next frame", async (t) => {
  const g = await gateway(t);
  const program = await g.service([hello, damagesLater]);
  assert.equal((await g.run(program, 1, { query: { name: "constructor" } })).body, "done");
  await g.exited;
  assert.deepEqual(damaged(g), [[program, 1]]);
});

test("damage by code of one of several runs that have ended is reported for none of their handlers", async (t) => {
  const g = await gateway(t);
  const program = await g.service([hello, damagesLater]);
  g.together(() => {
    g.start_run(program, 1, { query: { name: "constructor" } });
    g.start_run(program, 0);
  });
  await g.exited;
  assert.deepEqual(damaged(g), [[0, 0]]);
});

test("a change of a shared object by a run does not make a program broken that loads meanwhile", async (t) => {
  for (const change of ["delete Array.prototype[query.name]", "Array.prototype[query.name] = 'odd'"]) {
    const g = await gateway(t);
    writeFileSync(join(g.folder, "waits.mjs"), "await globalThis.waiting");
    const program = await g.service([
      plain("globalThis.waiting = new Promise((resolve) => { globalThis.finish = resolve }); $r.respond('done')"),
      plain(`(async () => { await 0; ${change}; finish() })(); $r.respond('done')`),
    ]);
    await g.run(program, 0);
    const code = `(async ($s) => { await $s.import("./waits.mjs"); $s.service("test", () => $s.handler(0, () => {})) })`;
    const loading = g.load(code, { services: [{ name: "test", handlers: [{}] }] }).then(() => "loaded", (error) => error.message);
    assert.equal((await g.run(program, 1, { query: { name: "constructor" } })).body, "done");
    if (change.startsWith("delete")) {
      assert.equal(await Promise.race([loading, g.exited.then(() => "ended")]), "ended");
      assert.deepEqual(damaged(g), [[0, 0]]);
    } else {
      assert.equal(await loading, "loaded");
    }
  }
});

test("damage by a program that a worker with runs loads is reported for no handler", async (t) => {
  const code = `(async ($s) => { $s.service("test", () => $s.handler(0, () => {})); delete Array.prototype[String("constructor")]; await finish })`;
  for (const finish of ["0", "new Promise(() => {})"]) {
    const g = await gateway(t);
    const program = await g.service([hello]);
    const loads = () => g.load(code.replace("finish", finish), { services: [{ name: "test", handlers: [{}] }] }).catch(assert.fail);
    await lives(g, program);
    g.together(() => {
      g.start_run(program, 0);
      loads();
    });
    await g.exited;
    assert.deepEqual(damaged(g), [[0, 0]]);
  }
});

test("a program is not broken by damage of a run before it in the same read", async (t) => {
  const g = await gateway(t);
  const program = await g.service([damagesLater]);
  g.together(() => {
    g.start_run(program, 0, { query: { name: "constructor" } });
    g.service([hello]).catch(assert.fail);
  });
  await g.exited;
  assert.deepEqual(damaged(g), [[0, 0]]);
});

test("a program that deletes the constructor of arrays is broken", async (t) => {
  const g = await gateway(t);
  await assert.rejects(g.service([hello], { helpers: "delete Object.getPrototypeOf([])[String('constructor')];" }), /constructor/);
});

test("a program that changes a shared object so that it cannot be restored is broken", async (t) => {
  const g = await gateway(t);
  const helpers = "Object.defineProperty(Object.getPrototypeOf([]), 'constructor', { value: Map, writable: false";
  await lives(g, await g.service([hello], { helpers: `${helpers} });` }));
  await assert.rejects(g.service([hello], { helpers: `${helpers}, configurable: false });` }));
});

test("a long message and a long stack are cut", async (t) => {
  const g = await gateway(t);
  const long = "const error = new Error('x'.repeat(1e6)); error.stack = 'x'.repeat(1e6) + 'end'; throw error";
  const program = await g.service([plain(long), plain("throw ['x'.repeat(1e6)]")]);
  const { message, stack } = await g.run(program, 0);
  assert.deepEqual([message.length, stack.length, stack.slice(-3)], [8 << 10, 16 << 10, "end"]);
  assert.ok((await g.run(program, 1)).message.length <= 8 << 10);
});

test("objects may have members of their own with inherited names, and packages may add polyfills", async (t) => {
  const g = await gateway(t);
  const helpers = `
    Array.prototype.added ??= function () { return this.length };
    Object.defineProperty(String.prototype, "added", { value() { return this + "!" }, writable: true, configurable: true });
    Object.defineProperty(Object, "entries", { value: Object.entries, writable: false, configurable: true });
    function Older() {}
    Older.prototype = { get age() { return "older" } };
    Older.prototype.constructor = Older;`;
  const program = await g.service(
    [
      plain(`
        function Old() {}
        Old.prototype = Object.create({});
        Old.prototype.constructor = Old;
        Old.prototype.toString = function () { return "old" };
        const own = { a: 1 };
        for (const name of ["constructor", "hasOwnProperty", "__proto__"]) own[name] = name;
        own.valueOf = () => 7;
        const list = Object.assign([1, 2], { map: "own", added: "own" });
        const act = Object.assign(() => 1, { call: "own", toString: () => "act" });
        $r.respond([String(new Old()), new Old().constructor === Old, own + 1, Object.keys(own), own.constructor, own.hasOwnProperty, Object.assign({}, own).constructor, list.map, list.added, act.call, String(act), act.apply()])`),
      plain("$r.respond([[1, 2].added(), 'a'.added(), new Older().age, new Older().constructor === Older, Object.entries({ a: 1 })])"),
    ],
    { helpers },
  );
  const { body } = await g.run(program, 0);
  assert.deepEqual(JSON.parse(body), ["old", true, 8, ["a", "constructor", "hasOwnProperty", "__proto__", "valueOf"], "constructor", "hasOwnProperty", "constructor", "own", "own", "own", "act", 1]);
  assert.equal((await g.run(program, 1)).body, '[2,"a!","older",true,[["a",1]]]');
});

test("rule 21: a script imports packages from its folder", async (t) => {
  const g = await gateway(t);
  const install = (name, manifest, files) => {
    const folder = join(g.folder, "node_modules", name);
    mkdirSync(join(folder, "lib"), { recursive: true });
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name, ...manifest }));
    for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
  };
  install("common", { main: "lib/main.js" }, { "lib/main.js": "exports.twice = (x) => 2 * x" });
  install("modern", { type: "module", exports: { ".": { import: "./lib/i.js" }, "./deep/*": "./lib/*.js" } }, {
    "lib/i.js": "export default (x) => x + 1",
    "lib/far.js": "export const far = 'away'",
  });
  install("@scope/both", { exports: { require: "./no.cjs", default: "./lib/yes.mjs" } }, { "lib/yes.mjs": "export const yes = 1" });
  writeFileSync(join(g.folder, "local.mjs"), "export const here = 'beside'");
  const code = `(async ($s) => {"use strict";
    const { twice } = await $s.import("common"), { default: next } = await $s.import("modern"), { far } = await $s.import("modern/deep/far");
    const { yes } = await $s.import("@scope/both"), { here } = await $s.import("./local.mjs"), { createHash } = await $s.import("node:crypto");
    $s.service("test", () => $s.handler(0, (query, response, $r) => $r.respond([twice(2), next(1), far, yes, here, createHash("md5").update("a").digest("hex")])))})`;
  const program = await g.load(code, { services: [{ name: "test", handlers: [{}] }] });
  assert.equal((await g.run(program)).body, '[4,2,"away",1,"beside","0cc175b9c0f1b6a831c399e269772661"]');
});

test("a program that can't be loaded reports the reason, and others continue", async (t) => {
  const g = await gateway(t);
  const good = await g.service([hello]);
  const described = { services: [{ name: "test", handlers: [{}] }] };
  await assert.rejects(g.load(`(async ($s) => { await $s.import("nowhere") })`, described), /Cannot find|ResolveMessage|nowhere/);
  await assert.rejects(g.load(`(async ($s) => {\n throw new TypeError("at the top") })`, described), /TypeError: at the top/);
  await assert.rejects(g.load(`(async ($s) => { $s.service("other", () => {}) })`, described), /the program's descriptor has no service other/);
  await assert.rejects(g.load(`(async ($s) => { $s.service("test", () => {}) })`, described), /handler 0 of service test has no code/);
  await assert.rejects(g.load(`(async ($s) => {`, described), /SyntaxError/);
  await lives(g, good);
});

test("a changed program runs beside the old one until that is unloaded", async (t) => {
  const g = await gateway(t, { calls: () => ({ kind: TEXT, content: "x" }) });
  const old = await g.service([hello, async(`$r.respond(await ${call} + " old")`)]);
  const changed = await g.service([plain("$r.respond('changed')")]);
  const running = g.start_run(old, 1);
  assert.deepEqual([(await g.run(old)).body, (await g.run(changed)).body], ["hello", "changed"]);
  g.forget(2, old);
  assert.equal((await running.ended).body, "x old");
  assert.equal((await g.run(old)).message, "Error: the program is not loaded here");
  assert.equal((await g.run(changed, 5)).message, "Error: the program has no such handler");
});

test("FORGET removes a cell and an instance", async (t) => {
  const g = await gateway(t);
  const program = await g.service([
    { code: "function (query, response, $r, captured) { $r.respond([$r.cells.a ?? null, captured ?? null]) }", cells: ["a"] },
  ]);
  g.state(1, 1, 0, 5);
  g.instance(2, '{"values":{"v":1},"resources":{}}');
  const options = { cells: [1], version: 1, instance: 2 };
  assert.equal((await g.run(program, 0, options)).body, '[5,{"v":1}]');
  g.forget(0, 1);
  g.forget(1, 2);
  assert.equal((await g.run(program, 0, options)).body, "[null,null]");
});

test(`the worker reports its engine (${ENGINE[0].split("/").at(-1)})`, async (t) => {
  const g = await gateway(t);
  assert.match(g.engine, /^(node|bun|deno) \d+\.\d+\.\d+$/);
  assert.equal(g.hello.worker, 7);
});
