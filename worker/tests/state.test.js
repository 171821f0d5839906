// The handlers' view of state, compared with a model that copies everything: a writer, concurrent readers of
// older versions, a copy that is built from the change sets alone, and another worker that receives these.
import assert from "node:assert/strict";
import { test } from "node:test";

import { stringify } from "../views.js";
import { key, law, value } from "./random.js";
import { NAMES, Side, applied, changesOf, unfolded, writer } from "./side.js";

const clone = unfolded;

/** Returns the objects and arrays in a model, with their counterparts in the view. */
function places(model, view, found = []) {
  for (const name of Object.keys(model)) {
    if (typeof model[name] === "object" && model[name] !== null) {
      found.push([model[name], view[name]]);
      places(model[name], view[name], found);
    }
  }
  return found;
}

/** Executes a random statement of a handler on both. */
function step(r, model, view) {
  const all = places(model, view);
  if (all.length === 0 || r.chance(0.08)) {
    const name = r.pick(NAMES);
    const next = r.chance(0.1) ? null : r.chance(0.2) && all.length ? r.pick(all) : value(r, 4);
    const isView = Array.isArray(next) && all.includes(next);
    model[name] = isView ? next[0] : clone(next);
    view[name] = isView ? next[1] : next;
    return;
  }
  const [inModel, inView] = r.pick(all);
  if (Array.isArray(inModel)) return stepArray(r, inModel, inView);
  const name = key(r);
  if (r.chance(0.25)) {
    delete inModel[name];
    delete inView[name];
  } else {
    const next = value(r, 2);
    inModel[name] = clone(next);
    inView[name] = next;
  }
}

function stepArray(r, inModel, inView) {
  const size = inModel.length;
  const both = (act) => {
    const [mine, theirs] = [act(inModel), act(inView)];
    if (mine !== inModel) assert.deepEqual(JSON.parse(JSON.stringify([theirs])), JSON.parse(JSON.stringify([mine])));
  };
  const [a, b] = [value(r, 2), value(r, 2)];
  const [i, n] = [r.below(size + 2) - 1, r.below(3)];
  switch (r.below(12)) {
    case 0:
      return both((list) => list.push(clone(a), clone(b)));
    case 1:
      return both((list) => list.pop());
    case 2:
      return both((list) => list.shift());
    case 3:
      return both((list) => list.unshift(clone(a)));
    case 4:
      return both((list) => list.splice(i, n, ...[a, b].slice(0, r.below(1) + n).map(clone)));
    case 5:
      return both((list) => list.splice(i, n));
    case 6:
      return both((list) => list.reverse());
    case 7:
      return both((list) => list.sort((x, y) => (JSON.stringify(x) < JSON.stringify(y) ? -1 : 1)));
    case 8:
      return both((list) => void (list.length = Math.max(0, size - n)));
    case 9:
      return both((list) => void (list[r_index(size, i)] = clone(a)));
    case 10:
      return both((list) => list.fill(clone(a), i, i + n));
    default:
      return both((list) => list.copyWithin(i, n));
  }
}

const r_index = (size, i) => Math.min(Math.max(i, 0), size);

/** Checks that a reader sees its version, through any kind of access. */
function look(r, { view, version }, versions) {
  const model = versions[version];
  const [inModel, inView] = r.pick([...places(model, view), [model, view]]);
  const plain = JSON.parse(JSON.stringify(inModel));
  if (inModel === model) {
    for (const name of NAMES) assert.deepEqual(JSON.parse(stringify([view[name]])), JSON.parse(JSON.stringify([model[name]])));
    return;
  }
  assert.deepEqual(JSON.parse(r.chance(0.5) ? stringify(inView) : JSON.stringify(inView)), plain);
  assert.deepEqual(new Set(Object.keys(inView)), new Set(Object.keys(inModel)));
  for (const [name, member] of Object.entries(inView)) assert.deepEqual(JSON.parse(JSON.stringify([member])), [plain[name]]);
  assert.ok(!("nowhere" in inView) && Object.keys(inModel).every((name) => name in inView));
  if (Array.isArray(inModel)) {
    assert.equal(inView.length, inModel.length);
    assert.equal(inView.map(() => 1).length, inModel.length);
    assert.deepEqual(JSON.parse(JSON.stringify([...inView])), plain);
    assert.equal(inView.at(-1) === undefined, inModel.length === 0);
  }
  const name = key(r);
  assert.equal(Object.hasOwn(inView, name), Object.hasOwn(inModel, name));
}

test("state matches a model: writers, throws, early commits, readers of older versions, replicas", () =>
  law(60, (r) => {
    const first = NAMES.map(() => (r.chance(0.2) ? undefined : value(r, 4)));
    /** Committed values by version. */
    const versions = [Object.fromEntries(NAMES.map((name, i) => [name, clone(first[i])]))];
    let copy = first;
    const here = new Side(first);
    const there = new Side(first);
    let [durable, shipped] = [0, 0];
    const sets = [undefined];
    const readers = [];
    for (let round = 0; round < 25; round++) {
      const base = versions.length - 1;
      const { run, worker, view } = here.open(base, durable, true);
      const model = clone(versions[base]);
      const statements = r.below(8);
      let committed = false;
      for (let i = 0; i < statements; i++) {
        step(r, model, view);
        if (readers.length && r.chance(0.3)) look(r, r.pick(readers), versions);
      }
      for (const name of NAMES) assert.deepEqual(JSON.parse(stringify([view[name]])), JSON.parse(JSON.stringify([model[name]])));
      if (r.chance(0.25)) {
        run.fail(new Error("thrown"));
      } else {
        if (r.chance(0.3)) {
          run.commit();
          committed = true;
        } else {
          run.finish();
        }
        const ops = changesOf(worker);
        copy = applied(copy, ops);
        if (ops.length > 0) {
          versions.push(Object.fromEntries(NAMES.map((name) => [name, clone(model[name])])));
          sets.push(ops);
        }
        assert.deepEqual(copy.map(clone), NAMES.map((name) => versions.at(-1)[name]));
        if (committed) readers.push({ run, view, version: versions.length - 1, worker });
      }
      const newest = versions.length - 1;
      if (r.chance(0.5)) durable += r.below(newest - durable + 1);
      for (; shipped < newest && r.chance(0.6); shipped++) {
        NAMES.forEach((_, slot) => {
          const own = sets[shipped + 1].filter(([of]) => of === slot);
          const whole = copy[slot] !== undefined && shipped + 1 === newest && r.chance(0.2);
          if (own.length === 0) return;
          if (whole) there.cells.receive(slot, 0, shipped + 1, JSON.stringify(copy[slot]));
          else there.cells.receive(slot, 1, shipped + 1, JSON.stringify([own]));
        });
      }
      if (r.chance(0.7)) {
        const version = durable + r.below(newest - durable + 1);
        readers.push(here.open(version, durable, false));
      }
      if (shipped >= durable && r.chance(0.7)) readers.push(there.open(durable + r.below(shipped - durable + 1), durable, false));
      for (const reader of readers) look(r, reader, versions);
      while (readers.length > 0 && r.chance(0.4)) readers.splice(r.below(readers.length), 1)[0].run.finish();
    }
    for (const reader of readers) reader.run.finish();
    const newest = versions.length - 1;
    for (const id of NAMES.keys()) assert.equal(here.cells.find(id, newest, newest).noted, 0, "old values are dropped");
  }));

test("a position that is set repeatedly is one entry of the change set", () => {
  const counter = writer(0);
  for (let i = 0; i < 1000; i++) counter.view.one++;
  assert.deepEqual(counter.ops(), [[0, [], 1000]]);
  const object = writer({ a: 1 });
  for (const value of [2, 3]) object.view.one.b = value;
  delete object.view.one.b;
  object.view.one.b = 4;
  assert.deepEqual(object.ops(), [[0, ["b"], 4]]);
});

test("a change inside a new object of the same run needs no entry of its own", () => {
  const { view, ops } = writer({});
  view.one.list = [];
  for (let i = 0; i < 3; i++) view.one.list.push({ i });
  view.one.list[0].done = true;
  view.one.list.shift();
  assert.deepEqual(ops(), [[0, ["list"], [{ i: 1 }, { i: 2 }]]]);
});

test("an append is one entry, regardless of the array's length", () => {
  const { view, ops } = writer(Array(1000).fill(1));
  view.one.push(2, 3);
  view.one[1002] = 4;
  assert.deepEqual(ops(), [[0, [1000], 2], [0, [1001], 3], [0, [1002], 4]]);
});

test("a removal from or insertion into an array is one entry without the rest", () => {
  const { view, ops } = writer(Array(1000).fill(1), { list: [1, 2, 3] });
  assert.equal(view.one.shift(), 1);
  view.one.unshift(2, 3);
  assert.deepEqual(view.one.splice(500, 2, { n: 4 }), [1, 1]);
  view.one[500].n = 5;
  view.two.list.splice(1, 1);
  view.two.list.splice(0, 1, 6);
  assert.deepEqual(ops(), [
    [0, [0], 1, [2, 3]],
    [0, [500], 2, [{ n: 5 }]],
    [1, ["list", 0], 6],
    [1, ["list", 1], 1, []],
  ]);
});

test("an array that is spliced often is one entry", () => {
  const { view, ops } = writer(Array(1000).fill(1));
  while (view.one.length > 2) view.one.shift();
  const all = ops();
  assert.ok(all.length < 20);
  assert.deepEqual(all.at(-1), [0, [], [1, 1]]);
});

test("unchanged values are not in the change set", () => {
  const { view, ops } = writer({ a: 1 }, 5);
  view.one.a = 1;
  view.two = 5;
  delete view.one.b;
  view.one.length = undefined ?? 1;
  delete view.one.length;
  assert.deepEqual(ops(), []);
});

test("a view is equal to itself", () => {
  const { view } = writer({ a: [{ n: 1 }] });
  assert.equal(view.one.a, view.one.a);
  assert.equal(view.one.a.indexOf(view.one.a[0]), 0);
});

test("rule 8: a value that is not JSON is refused with its position", () => {
  const { view } = writer({}, []);
  const circle = { a: [] };
  circle.a.push(circle);
  let deep = [];
  for (let i = 0; i < 101; i++) deep = [deep];
  const refused = [
    [() => (view.one = () => 1), /^`one` can't be a function/],
    [() => (view.one = undefined), /^`one` can't be undefined/],
    [() => (view.one.f = { a: [1, { b: Symbol() }] }), /^`one\.f\.a\[1\]\.b` can't be a symbol/],
    [() => (view.one.x = undefined), /^`one\.x` can't be undefined/],
    [() => (view.one.x = NaN), /^`one\.x` can't be the number NaN/],
    [() => (view.one.x = -Infinity), /can't be the number -Infinity/],
    [() => (view.one.x = 1n), /can't be a BigInt/],
    [() => (view.one.x = { d: new Date() }), /^`one\.x\.d` can't be an instance of Date/],
    [() => (view.one.x = new Map()), /can't be an instance of Map/],
    [() => (view.one["a b"] = circle), /^`one\["a b"\]\.a\[0\]` can't be a circle/],
    [() => (view.one.x = deep), /more than 100 levels/],
    [() => (view.one.x = [1, , 2]), /^`one\.x\[1\]` can't be undefined/],
    [() => (view.one.__proto__ = {}), /`__proto__`/],
    [() => (view.one.x = JSON.parse('{"__proto__": 1}')), /`__proto__`/],
    [() => (view.one[Symbol.iterator] = 1), /symbol/],
    [() => Object.defineProperty(view.one, "x", { get: () => 1 }), /plain members only/],
    [() => Object.freeze(view.one), /frozen/],
    [() => Object.setPrototypeOf(view.one, null), /prototype/],
    [() => (view.two[3] = 1), /^`two\[3\]` would leave a hole/],
    [() => (view.two.length = 5), /leave a hole/],
    [() => (view.two.name = "x"), /elements only/],
    [() => view.two.push(1, undefined), /^`two\[1\]` can't be undefined/],
    [() => delete view.two[0], /leave a hole/],
  ];
  for (const [act, message] of refused) {
    assert.throws(act, (error) => error.name === "StateError" && message.test(error.message) && /S rule 8/.test(error.message), String(message));
  }
});

test("rule 8: an array has elements only, even a new one", () => {
  const named = (members, list = [1]) => Object.assign(list, members);
  const set = (key) => ({ view }) => {
    view.two = [];
    view.two[key] = 1;
  };
  const refused = [
    [set(4294967295), /^`two` can't have `4294967295`: an array has elements only/],
    [set(-1), /^`two` can't have `-1`: an array has elements only/],
    [set(1.5), /^`two` can't have `1\.5`: an array has elements only/],
    [set("name"), /^`two` can't have `name`: an array has elements only/],
    [({ view }) => (view.one.list = named({ total: 1 })), /^`one\.list` can't have `total`: an array has elements only/],
    [({ view }) => view.two.push([named({ total: 1 })]), /^`two\[0\]\[0\]` can't have `total`: an array has elements only/],
    [({ view }) => (view.one.found = "a1".match(/(\d)/)), /^`one\.found` can't have `index`: an array has elements only/],
  ];
  for (const [act, message] of refused) {
    const opened = writer({}, []);
    try {
      act(opened);
      opened.run.finish();
    } catch (error) {
      opened.run.fail(error);
    }
    const at = opened.worker.frames.findIndex(([name, type]) => name === "begin" && type === 72);
    const [kind, , , [, text]] = opened.worker.frames.slice(at + 1);
    assert.deepEqual(kind, ["u8", 2]);
    assert.match(text, message);
    assert.match(text, /S rule 8/);
  }
  const opened = writer({}, undefined);
  opened.view.two = [];
  opened.view.two[0] = "first";
  opened.view.one.found = [...("a1".match(/(\d)/) ?? [])];
  assert.deepEqual(applied([{}, undefined], opened.ops()), [{ found: ["1", "1"] }, ["first"]]);
});

test("rule 8: names of inherited members can be read and written as members, and intrinsics remain unchanged", () => {
  const shapes = [Object.prototype, Array.prototype, Function.prototype, Object, Array];
  const shape = () => shapes.map((object) => Object.entries(Object.getOwnPropertyDescriptors(object)));
  const names = [...new Set([Object.prototype, Array.prototype].flatMap((object) => Object.getOwnPropertyNames(object)))];
  const before = shape();
  return law(300, (r) => {
    const side = new Side([{}, []]);
    const model = new Map();
    for (let version = 1; version < 8; version++) {
      const reader = version > 1 ? side.open(version - 1, 0, false) : undefined;
      const { view, run } = side.open(version - 1, 0, true);
      const [outer, inner] = [r.pick(names), r.pick(names)];
      const members = model.get(outer);
      const act = r.below(4);
      assert.equal(outer in view.one, model.has(outer));
      if (act === 0) {
        delete view.one[outer];
        model.delete(outer);
      } else if (outer === "__proto__") {
        assert.equal(view.one[outer], undefined);
        assert.throws(() => (view.one[outer] ??= {}), { name: "StateError" });
      } else if (members === undefined) {
        assert.equal(view.one[outer], undefined);
        view.one[outer] = {};
        model.set(outer, new Map());
      } else if (inner !== "__proto__") {
        assert.equal(view.one[outer][inner], members.get(inner));
        view.one[outer][inner] = (view.one[outer][inner] ?? 0) + 1;
        members.set(inner, (members.get(inner) ?? 0) + 1);
      }
      // The inherited members of an array are immutable methods of its own.
      const method = view.two[inner];
      assert.ok(inner === "length" ? method === 0 : method === undefined || Object.isFrozen(method), inner);
      assert.ok(method !== Array.prototype[inner] || method === undefined || inner === "length", inner);
      assert.equal(reader?.view.one.__proto__, undefined);
      run.finish();
      const plain = [...model].map(([name, inside]) => [name, Object.fromEntries(inside)]);
      assert.deepEqual(JSON.parse(stringify(side.open(version, 0, false).view.one)), Object.fromEntries(plain));
    }
    assert.deepEqual(shape(), before);
  });
});

test("a view can be converted to a string, whatever the names of its members", () => {
  const { view } = new Side([{ toString: 1, valueOf: 2, list: [1, [2]] }, {}]).open(0, 0, false);
  assert.deepEqual([`${view.one}`, view.two + "", Number(view.one), String(view.one.list)], ["[object Object]", "[object Object]", NaN, "1,2"]);
  assert.deepEqual([view.one.toString, view.two.hasOwnProperty, Object.hasOwn(view.one, "list")], [1, undefined, true]);
});

test("values are stored as in JSON", () => {
  const { view, ops } = writer(0, {});
  view.one = -0;
  view.two.half = "a\ud800b";
  view.two.none = Object.create(null);
  assert.deepEqual([Object.is(view.two.half, "a\ufffdb"), ops()], [true, [[1, ["half"], "a\ufffdb"], [1, ["none"], {}]]]);
});

test("rule 8: names and strings with unpaired surrogates are stored and found as well-formed ones", () => {
  const first = writer({ "\ufffd": { n: 1 } }, ["x"]);
  const { one, two } = first.view;
  assert.ok("\ud800" in one && Object.hasOwn(one, "\ud800") && one["\ud800"] === one["\udfff"]);
  Object.getOwnPropertyDescriptor(one, "\ud800").value.n++;
  for (const [key, value] of [["a\ud800", 1], ["a\udbff", 2], ["a\udc00b", 3]]) (one[key] ??= []).push(value);
  two.push("\ud83d");
  assert.deepEqual([two.includes("\ud83d"), two.indexOf("\udbff"), two.lastIndexOf("\ufffd"), two.indexOf("\ud800", 2)], [true, 1, 1, -1]);
  Object.defineProperty(one, "a\ud800", { value: 4 });
  const set = [[0, ["\ufffd", "n"], 2], [0, ["a\ufffd"], 4], [0, ["a\ufffdb"], [3]], [1, [1], "\ufffd"]];
  assert.deepEqual(first.ops().toSorted(), set.toSorted());
  const { view, run, worker } = first.side.open(1, 0, true);
  assert.deepEqual([view.one["a\udc00"], "a\udc00" in view.one, view.two.includes("\udc00")], [4, true, true]);
  delete view.one["a\udc00"];
  run.finish();
  assert.deepEqual(changesOf(worker), [[0, ["a\ufffd"]]]);
  const reader = first.side.open(1, 0, false);
  assert.deepEqual([reader.view.one["a\udc00"], "a\udc00" in reader.view.one], [4, true], "an older version");
});

test("rule 8: names that differ in unpaired surrogates only are refused in one object", () => {
  for (const object of [{ "\ud800": 1, "\ud801": 2 }, { "\ufffd": 1, "\ud800": 2 }, { "\ud800": 1, "\ufffd": 2 }]) {
    const { view, run, worker } = writer({}, 0);
    view.one.x = [object];
    run.finish();
    const at = worker.frames.findIndex(([name, type]) => name === "begin" && type === 72);
    assert.match(worker.frames[at + 4][1], /^`one\.x\[0\]` has two members of one name.*S rule 8/);
  }
});

test("rule 3: a reader can't write in any way", () => {
  const { view } = new Side([{ list: [3, 1], o: { a: 1 } }, 1]).open(0, 0, false);
  const tries = [
    () => (view.two = 2),
    () => (view.one.o.a = 2),
    () => delete view.one.o.a,
    () => view.one.list.push(1),
    () => view.one.list.sort(),
    () => view.one.list.pop(),
    () => Array.prototype.push.call(view.one.list, 1),
    () => Object.assign(view.one.o, { b: 1 }),
    () => Object.defineProperty(view.one.o, "b", { value: 1, writable: true, enumerable: true, configurable: true }),
    () => (view.one.list.length = 0),
  ];
  for (const act of tries) assert.throws(act, { name: "TypeError", message: /GET reads the last committed version.*S rule 3/ }, String(act));
  assert.deepEqual(JSON.parse(stringify(view.one)), { list: [3, 1], o: { a: 1 } });
});

test("a reader's array has all methods, and returns mutable copies", () => {
  const { view } = new Side([[{ n: 3 }, { n: 1 }, { n: 2 }], [3, 1, 2]]).open(0, 0, false);
  assert.deepEqual(view.two.toSorted(), [1, 2, 3]);
  assert.deepEqual([...view.two].sort(), [1, 2, 3]);
  assert.deepEqual(view.one.map(({ n }) => n), [3, 1, 2]);
  assert.deepEqual(view.one.filter(({ n }) => n > 1).length, 2);
  assert.deepEqual(view.two.concat([4]), [3, 1, 2, 4]);
  assert.deepEqual([0].concat(view.two), [0, 3, 1, 2]);
  assert.equal(view.two.reduce((a, b) => a + b), 6);
  assert.equal(view.two.join("-"), "3-1-2");
  assert.equal(String(view.two), "3,1,2");
  let sum = 0;
  for (const { n } of view.one) sum += n;
  for (const i in view.two) sum += view.two[i];
  assert.equal(sum, 12);
  assert.throws(() => view.one.forEach((element) => (element.n = 0)), /S rule 3/);
});

test("rule 6: after an early commit, a run sees its own result, regardless of later writes", () => {
  const side = new Side([1, { a: 1 }]);
  const first = side.open(0, 0, true);
  first.view.one = 2;
  first.view.two.a = 2;
  const { two } = first.view;
  first.run.commit();
  const second = side.open(1, 0, true);
  second.view.one = 3;
  second.view.two.a = 3;
  assert.deepEqual([first.view.one, two.a, first.view.two.a], [2, 2, 2]);
  assert.throws(() => (first.view.one = 4), { name: "TypeError", message: /has committed already \(S rule 6\)/ });
  second.run.fail(new Error());
  assert.deepEqual([first.view.one, two.a], [2, 2]);
});
