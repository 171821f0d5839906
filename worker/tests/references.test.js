// References within a handler are those of JavaScript: random handlers run on state and on plain objects, and
// the results are equal, including the order of members; after a throw, the state is unchanged.
import assert from "node:assert/strict";
import { test } from "node:test";

import { stringify } from "../views.js";
import { key, law, value } from "./random.js";
import { NAMES, Side, applied, changesOf, unfolded, writer } from "./side.js";

const isObject = (value) => typeof value === "object" && value !== null;
/** Returns the paths of objects and arrays below the cells and the local variables, excluding circles. */
function paths(roots) {
  const found = [];
  const walk = (object, path, above) => {
    if (!isObject(object) || above.includes(object) || path.length > 7) return;
    found.push(path);
    for (const name of Object.keys(object)) walk(object[name], [...path, name], [...above, object]);
  };
  for (const name of NAMES) walk(roots.state[name], ["state", name], []);
  for (const name of Object.keys(roots.local).sort()) walk(roots.local[name], ["local", name], []);
  return found;
}
const at = (world, path) => path.reduce((object, step) => object[step], world);
/** Whether an object is reachable from a value. */
function reaches(value, object, seen = new Set()) {
  if (!isObject(value) || seen.has(value)) return false;
  if (value === object) return true;
  seen.add(value);
  return Object.values(value).some((inner) => reaches(inner, object, seen));
}

/**
 * Generates an assigned value: a new value, or a reference to an existing one. Returns it as a function of a
 * world.
 */
function operand(r, model) {
  const all = paths(model);
  if (all.length === 0 || r.chance(0.5)) {
    const text = JSON.stringify(value(r, 2));
    return () => JSON.parse(text);
  }
  const path = r.pick(all);
  return (world) => at(world, path);
}

/** Generates a call of an array method. */
function call(r, model, list) {
  const size = list.length;
  const index = () => r.pick([undefined, NaN, -Infinity, Infinity, -1, 0, 1, 0.5, -1.5, "1", null, size, size + 2, -size - 1, r.below(size + 1)]);
  const [a, b] = [operand(r, model), operand(r, model)];
  const some = (count) => Array.from({ length: r.below(count + 1) }, () => index());
  const name = r.pick(["push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "copyWithin", "slice", "concat", "at", "includes", "indexOf", "flat", "with", "toSpliced", "toReversed", "toSorted", "join", "map", "find", "keys", "lastIndexOf"]);
  const constant = (all) => () => all;
  switch (name) {
    case "push":
    case "unshift":
      return [name, r.pick([() => [], (w) => [a(w)], (w) => [a(w), b(w)]]), [a, b]];
    case "splice":
    case "toSpliced": {
      const where = some(2);
      return [name, where.length < 2 ? constant(where) : r.pick([constant(where), (w) => [...where, a(w)], (w) => [...where, a(w), b(w)]]), [a, b]];
    }
    case "fill": {
      const where = some(2);
      return [name, (w) => [a(w), ...where], [a]];
    }
    case "copyWithin":
    case "slice":
      return [name, constant(some(3)), []];
    case "with": {
      const where = r.below(size + 1);
      return [name, (w) => [where, a(w)], []];
    }
    case "concat":
      return [name, (w) => [a(w), b(w)], []];
    case "includes":
    case "indexOf":
    case "lastIndexOf":
      return [name, (w) => [a(w)], []];
    case "at":
    case "flat":
      return [name, constant(some(1)), []];
    case "sort":
    case "toSorted": {
      const compare = (x, y) => (JSON.stringify(x) < JSON.stringify(y) ? -1 : 1);
      return [name, constant(r.pick([[], [compare], [undefined]])), []];
    }
    case "map":
      return [name, constant([(element) => element]), []];
    case "find":
      return [name, constant([isObject]), []];
    default:
      return [name, constant([]), []];
  }
}

/** Generates a statement, as a function of a world; undefined if it would create a circle. */
function statement(r, model) {
  const all = paths(model);
  const variable = r.pick(["x", "y", "z"]);
  const next = operand(r, model);
  const kind = r.below(14);
  if (all.length === 0 || kind === 0) {
    const name = r.pick(NAMES);
    if (r.chance(0.1)) return (w) => void (w.state[name] = null);
    return (w) => void (w.state[name] = next(w));
  }
  if (kind === 1) return (w) => void (w.local[variable] = next(w));
  const path = r.pick(all);
  const target = at(model, path);
  const fits = (operands) => !operands.some((operand) => reaches(operand(model), target));
  if (Array.isArray(target)) {
    if (kind < 4) {
      const index = r.below(target.length + 1);
      return fits([next]) ? (w) => void (at(w, path)[index] = next(w)) : undefined;
    }
    if (kind === 4) {
      const length = r.below(target.length + 1);
      return (w) => void (at(w, path).length = length);
    }
    if (kind === 5 && target.length > 1) {
      const [i, j] = [r.below(target.length), r.below(target.length)];
      return (w) => {
        const list = at(w, path);
        [list[i], list[j]] = [list[j], list[i]];
      };
    }
    const [name, args, stored] = call(r, model, target);
    if (!fits(stored)) return undefined;
    return (w) => {
      const result = at(w, path)[name](...args(w));
      if (isObject(result) && typeof result.next !== "function") w.local[variable] = result;
      return result;
    };
  }
  const name = key(r);
  if (kind < 4) return (w) => void delete at(w, path)[name];
  if (kind === 4) return (w) => void (w.local[variable] = { ...at(w, path) });
  if (kind === 5) {
    return (w) => {
      const object = at(w, path);
      // State does not inherit from a prototype.
      if (!Object.hasOwn(object, name)) object[name] = [1];
      else if (Array.isArray(object[name])) object[name].push(1);
    };
  }
  if (!fits([next])) return undefined;
  if (kind === 6) return (w) => void Object.assign(at(w, path), { [name]: next(w) });
  if (kind === 7) return (w) => void Object.defineProperty(at(w, path), name, { value: next(w), writable: true, enumerable: true, configurable: true });
  return (w) => void (at(w, path)[name] = next(w));
}

/** Returns the result of a call, and the position of the returned object. */
function outcome(world, act) {
  try {
    const result = act(world);
    if (!isObject(result)) return result;
    if (typeof result.next === "function") return [...result];
    const elements = Array.isArray(result) ? result.map((element) => place(world, element)) : [];
    return { text: JSON.stringify(result), place: place(world, result), elements };
  } catch (error) {
    return `${error.name}: ${error.name === "StateError" ? error.message : ""}`;
  }
}

const place = (world, object) => isObject(object) && paths(world).find((path) => at(world, path) === object)?.join();

/** Returns the cells as texts: whole values including the order of members. */
const texts = (world) => NAMES.map((name) => JSON.stringify(world[name]));
const answered = (view) => NAMES.map((name) => (view[name] === undefined ? undefined : stringify(view[name])));

test("random handlers have the same effect as on plain objects, and none if they throw", () =>
  law(400, (r) => {
    const first = NAMES.map(() => (r.chance(0.1) ? undefined : value(r, 4)));
    const side = new Side(first);
    let copy = first.map(unfolded);
    let base = 0;
    const readers = [];
    for (let round = 0; round < 8; round++) {
      const before = copy.map((value) => JSON.stringify(value));
      if (r.chance(0.5)) readers.push({ ...side.open(base, 0, false), before });
      const { run, worker, view } = side.open(base, 0, true);
      const plain = { state: Object.fromEntries(NAMES.map((name, i) => [name, unfolded(copy[i])])), local: {} };
      const mine = { state: view, local: {} };
      for (let i = r.below(20); i > 0; i--) {
        const act = statement(r, plain);
        if (act === undefined) continue;
        const expected = outcome(plain, act);
        const got = outcome(mine, act);
        assert.deepEqual(got, expected, String(act));
        assert.deepEqual(answered(view), texts(plain.state));
        assert.deepEqual(texts(mine.local.x ? { one: mine.local.x } : {}), texts(plain.local.x ? { one: plain.local.x } : {}));
      }
      const [p, q] = [r.pick([...paths(plain), []]), r.pick([...paths(plain), []])];
      assert.equal(at(mine, p) === at(mine, q), at(plain, p) === at(plain, q), "identity");
      const isThrown = r.chance(0.3);
      if (isThrown) {
        run.fail(new Error("thrown"));
      } else {
        run.finish();
        assert.ok(!worker.frames.some(([name, type]) => name === "begin" && type === 72), JSON.stringify(worker.frames));
        const ops = changesOf(worker);
        copy = applied(copy, ops);
        assert.deepEqual(copy.map((value) => JSON.stringify(value)), texts(plain.state), "the change set");
        base += ops.length > 0 ? 1 : 0;
      }
      const after = copy.map((value) => JSON.stringify(value));
      assert.deepEqual(answered(side.open(base, 0, false).view), after, isThrown ? "unchanged" : "the new value");
      for (const reader of readers) {
        assert.deepEqual(answered(reader.view), reader.before);
        NAMES.forEach((name, i) => {
          const model = reader.before[i] === undefined ? undefined : JSON.parse(reader.before[i]);
          if (isObject(model)) assert.deepEqual(Object.keys(reader.view[name]), Object.keys(model), "order");
        });
      }
      if (r.chance(0.3)) readers.splice(0).forEach(({ run }) => run.finish());
    }
  }));

test("an assigned object keeps its identity until the handler ends", () => {
  const { view, ops } = writer({}, []);
  const list = [];
  view.one.word = list;
  list.push(7);
  (view.one.other ??= []).push(8);
  const item = { n: 1 };
  view.two.push(item);
  item.n = 2;
  const nested = { deep: { list: [] } };
  Object.assign(view.one, { nested });
  nested.deep.list.push(list);
  assert.ok(view.one.word === list && view.two[0] === item && view.one.nested.deep === nested.deep);
  assert.deepEqual(ops(), [
    [0, ["word"], [7]],
    [0, ["other"], [8]],
    [0, ["nested"], { deep: { list: [[7]] } }],
    [1, [0], { n: 2 }],
  ]);
});

test("an object at two positions is one object, and becomes two when the handler ends", () => {
  const { view, side, run, worker } = writer({ a: { n: 1 } }, [{ m: 1 }]);
  view.one.b = view.one.a;
  view.one.b.n = 2;
  view.two.push(view.one.a, view.two[0]);
  view.two[2].m = 3;
  assert.ok(view.one.a === view.one.b && view.two[1] === view.one.a && view.two[2] === view.two[0]);
  run.finish();
  assert.deepEqual(changesOf(worker), [[0, ["b"], { n: 2 }], [0, ["a", "n"], 2], [1, [1], { n: 2 }], [1, [2], { m: 3 }], [1, [0, "m"], 3]]);
  const next = side.open(1, 0, true);
  next.view.one.a.n = 5;
  assert.deepEqual([next.view.one.b.n, next.view.two[1].n], [2, 2]);
});

test("moved objects are stored, including changes after the move", () => {
  const { view, ops } = writer({ from: { list: [1], o: {} } }, null);
  const { from } = view.one;
  view.one.to = from;
  delete view.one.from;
  from.list.push(2);
  view.two = from.o;
  from.o.late = true;
  assert.deepEqual(ops(), [[0, ["from"]], [0, ["to"], { list: [1, 2], o: { late: true } }], [1, [], { late: true }]]);
});

test("an element that was read can be written after any move", () => {
  const { view, ops } = writer([{ n: 3 }, { n: 1 }, { n: 2 }], Array.from({ length: 5 }, (_, n) => ({ n })));
  const [three, one] = view.one;
  view.one.sort((a, b) => a.n - b.n);
  three.seen = 1;
  view.one.reverse();
  one.seen = 2;
  const [first, second] = view.two;
  assert.equal(view.two.shift(), first);
  first.gone = true;
  second.stays = true;
  view.two.unshift({ n: 9 }, { n: 8 });
  view.two[1].n = 7;
  second.again = true;
  assert.deepEqual(ops(), [
    [0, [], [{ n: 3, seen: 1 }, { n: 2 }, { n: 1, seen: 2 }]],
    [1, [0], 1, [{ n: 9 }, { n: 7 }]],
    [1, [2, "stays"], true],
    [1, [2, "again"], true],
  ]);
});

test("a value that can't be stored at the end of a handler makes it fail without an effect", () => {
  const breaks = [
    [(o) => (o.self = o), /^`one\.o\.self` can't be a circle/],
    [(o) => (o.list[3] = 1), /^`one\.o\.list\[0\]` can't be undefined/],
    [(o) => (o.f = () => 1), /^`one\.o\.f` can't be a function/],
    [(o, view) => (o.up = view.one), /^`one\.o\.up\.o` can't be a circle/],
  ];
  for (const [act, message] of breaks) {
    const { view, run, worker, side } = writer({ a: 1 }, 1);
    const o = { list: [] };
    view.one.o = o;
    delete view.one.a;
    view.two = 2;
    act(o, view);
    run.finish();
    const at = worker.frames.findIndex(([name, type]) => name === "begin" && type === 72);
    const [kind, , , [, text]] = worker.frames.slice(at + 1);
    assert.deepEqual(kind, ["u8", 2]);
    assert.match(text, message);
    assert.deepEqual(answered(side.open(0, 0, false).view), ['{"a":1}', "1"]);
  }
});

test("rule 8: a getter of an assigned object can read state but not change it", () => {
  const getter = (object, get) => Object.defineProperty(object, "a", { get, enumerable: true });
  const reads = writer({ n: 1 }, []);
  reads.view.one.x = getter({}, () => reads.view.one.n);
  reads.view.one.n = 2;
  assert.deepEqual(reads.ops(), [[0, ["n"], 2], [0, ["x"], { a: 2 }]]);
  const writes = [
    (view) => view.one.n++,
    (view) => (view.one.list = []),
    (view) => delete view.one.n,
    (view) => view.two.push(1),
    (view) => view.two.sort(),
    (view) => (view.two = 1),
  ];
  for (const write of writes) {
    const { view, run, worker, side } = writer({ n: 1 }, [2, 1]);
    const object = {};
    view.one.late = object;
    getter(object, () => write(view));
    const refused = { name: "StateError", message: /^a getter of an object in state can't change state \(S rule 8\)$/ };
    for (const act of [() => (view.one.early = object), () => view.two.push(object), () => (view.one = { object })]) {
      assert.throws(act, refused, String(write));
    }
    assert.deepEqual([view.one.n, view.two.length], [1, 2]);
    run.finish();
    const at = worker.frames.findIndex(([name, type]) => name === "begin" && type === 72);
    assert.deepEqual(worker.frames[at + 1], ["u8", 2], String(write));
    assert.deepEqual(answered(side.open(0, 0, false).view), ['{"n":1}', "[2,1]"]);
  }
});

test("members keep their order for concurrent readers and after a throw", () => {
  const side = new Side([{ a: 1, b: 2, c: 3 }, { list: [{ x: 1, y: 2 }] }]);
  const before = ['{"a":1,"b":2,"c":3}', '{"list":[{"x":1,"y":2}]}'];
  const reader = side.open(0, 0, false);
  const thrown = side.open(0, 0, true);
  delete thrown.view.one.a;
  delete thrown.view.one.b;
  thrown.view.one.b = 5;
  delete thrown.view.one.b;
  delete thrown.view.two.list[0].x;
  assert.deepEqual([answered(thrown.view), Object.keys(thrown.view.one), "a" in thrown.view.one], [['{"c":3}', '{"list":[{"y":2}]}'], ["c"], false]);
  assert.deepEqual(answered(reader.view), before);
  thrown.run.fail(new Error("thrown"));
  assert.deepEqual([answered(reader.view), answered(side.open(0, 0, false).view)], [before, before]);
  const next = side.open(0, 0, true);
  delete next.view.one.a;
  next.view.one.a = 4;
  next.run.finish();
  assert.deepEqual(changesOf(next.worker), [[0, ["a"]], [0, ["a"], 4]]);
  assert.deepEqual([answered(reader.view), answered(side.open(1, 0, false).view)[0]], [before, '{"b":2,"c":3,"a":4}']);
});

test("after an early commit, assigned objects are frozen, and removed ones belong to the handler", () => {
  const side = new Side([[{ n: 1, list: [1] }, { n: 2 }], {}]);
  const { run, view, worker } = side.open(0, 0, true);
  const list = [{ deep: 1 }];
  view.two.list = list;
  const { list: inner } = view.one[0];
  const job = view.one.shift();
  const moved = view.one[0];
  view.two.moved = moved;
  view.one.pop();
  run.commit();
  assert.deepEqual(changesOf(worker), [[1, ["list"], [{ deep: 1 }]], [1, ["moved"], { n: 2 }], [0, ["length"], 0]]);
  assert.throws(() => list.push(2), TypeError);
  assert.throws(() => (list[0].deep = 2), TypeError);
  assert.throws(() => (moved.n = 3), { name: "TypeError", message: /S rule 6/ });
  job.n = 4;
  job.list.push(2, { m: 1 });
  inner.push(3);
  job.list[2].m = 2;
  assert.deepEqual([JSON.stringify(job), stringify(job)], Array(2).fill('{"n":4,"list":[1,2,{"m":2},3]}'));
  const next = side.open(1, 0, true);
  next.view.two.list.push(5);
  next.run.finish();
  assert.deepEqual(answered(view), ["[]", '{"list":[{"deep":1}],"moved":{"n":2}}']);
  assert.deepEqual(answered(side.open(2, 0, false).view)[1], '{"list":[{"deep":1},5],"moved":{"n":2}}');
});

test("after an early commit, an iteration over a removed array sees its changes", () => {
  const both = (act) => {
    const side = new Side([[{ todo: [1, 2] }], 0]);
    const { run, view } = side.open(0, 0, true);
    const { todo } = view.one.shift();
    run.commit();
    const plain = [1, 2];
    assert.deepEqual([act(todo), [...todo]], [act(plain), plain], String(act));
  };
  both((list) => { const seen = []; for (const n of list) { seen.push(n); if (n < 5) list.push(n + 2) } return seen });
  both((list) => { const seen = []; for (const [i, n] of list.entries()) { seen.push(i, n); if (n < 5) list.push(n + 2) } return seen });
  both((list) => list.map((n, i) => (i === 0 ? list.pop() : n)));
  both((list) => { const seen = []; list.forEach((n) => { seen.push(n); list.shift() }); return seen });
});

test("a member name from a client does not select a method of the view", () => {
  const { view, ops } = writer({}, {});
  for (const name of ["toJSON", "toString2"]) view.one[name] = (view.one[name] || 0) + 1;
  assert.deepEqual(ops(), [[0, ["toJSON"], 1], [0, ["toString2"], 1]]);
});

/** Whether state can contain a value. */
function isJson(value) {
  if (Array.isArray(value)) return Array.from(value).every(isJson);
  if (isObject(value)) return Object.values(value).every(isJson);
  return value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value);
}

test("array methods follow ECMAScript for any arguments", () => {
  const odd = [undefined, null, NaN, Infinity, -Infinity, -1, 0, -0, 1, 1.9, -1.9, 4, 100, -100, "1", "x", true, {}, [], [2], 1n, Symbol.iterator, () => 1, { valueOf: () => 2 }];
  const lists = [[], [1], [3, 1, 2, null, "b", "a", 10], [{ n: 2 }, { n: 1 }, [[4], 5]]];
  const names = Object.getOwnPropertyNames(Array.prototype).filter((name) => typeof Array.prototype[name] === "function" && name !== "constructor" && !name.startsWith("toLocale"));
  const seen = (result) => (typeof result?.next === "function" ? [...result] : result);
  const told = (act) => {
    try {
      return JSON.stringify([seen(act())]) ?? "none";
    } catch (error) {
      return error.name;
    }
  };
  for (const list of lists) {
    for (const name of names) {
      const calls = [[], ...odd.map((a) => [a]), ...odd.flatMap((a) => odd.slice(0, 14).map((b) => [a, b])), [1, 1, { k: 1 }], [0, undefined, 7], [undefined, undefined, 7], [0, 2, 1]];
      for (const args of calls) {
        const { view, run, worker } = writer(list, 0);
        const plain = structuredClone(list);
        const call = `${JSON.stringify(list)}.${name}(${args.map((value) => (typeof value === "symbol" ? "symbol" : typeof value === "bigint" ? "1n" : String(JSON.stringify(value) ?? value)))})`;
        const expected = told(() => plain[name](...args));
        const got = told(() => view.one[name](...args));
        if (got === "StateError") {
          // Only values that state cannot contain may be refused.
          assert.ok(!isJson(plain), `${call} is refused`);
          continue;
        }
        assert.equal(got, expected, call);
        assert.equal(JSON.stringify(view.one), JSON.stringify(plain), call);
        run.finish();
        if (worker.frames.some(([frame, type]) => frame === "begin" && type === 72)) continue;
        assert.equal(JSON.stringify(applied([list, 0], changesOf(worker))[0]), JSON.stringify(plain), call);
      }
    }
  }
});

test("an array may change during an iteration, and a comparison may throw", () => {
  const both = (act) => {
    const { view, ops } = writer([4, 1, 3, 2], 0);
    const plain = [4, 1, 3, 2];
    const run = (list) => {
      try {
        return act(list);
      } catch (error) {
        return error.message;
      }
    };
    assert.deepEqual(JSON.parse(JSON.stringify([run(view.one)])), JSON.parse(JSON.stringify([run(plain)])), String(act));
    assert.deepEqual(JSON.parse(stringify(view.one)), plain, String(act));
    assert.deepEqual(applied([[4, 1, 3, 2], 0], ops())[0], plain, String(act));
  };
  both((list) => list.sort(() => { throw new Error("no") }));
  both((list) => list.sort((a, b) => (list.push(9), a - b)) && list.length);
  both((list) => list.sort((a, b) => ((list.length = 1), a - b)));
  both((list) => list.sort((a, b) => ((list[0] = 7), b - a)));
  both((list) => { const seen = []; for (const n of list) { seen.push(n); if (seen.length < 9) list.push(n) } return seen });
  both((list) => { const seen = []; for (const n of list) { seen.push(n); list.shift() } return seen });
  both((list) => list.map((n, i) => (i === 0 ? list.pop() : n)));
  both((list) => list.filter((n, i) => (i === 1 && list.splice(0, 2), n > 1)));
  both((list) => list.reduce((sum, n) => (list.length < 6 && list.unshift(n), sum + n), 0));
  both((list) => { const all = list.entries(); list.pop(); return [...all] });
  both((list) => { const [a, ...rest] = list; [list[0], list[1]] = [list[1], a]; return rest });
  both((list) => { list.length = "2"; return list.length });
  both((list) => { list.length = -1 });
  both((list) => { list.length = 1.5 });
  both((list) => list.splice(1, undefined));
  both((list) => list.splice(undefined));
  both((list) => list.splice());
  both((list) => list.splice(-2, 1, 8, 9));
  both((list) => Array.prototype.push.call(list, 5));
  both((list) => Array.from(list).concat(list, [list.length]));
  both((list) => Object.entries(list));
  both((list) => [list.includes(NaN), list.indexOf(3), list.at(-1), list.with(0, 9), list.toSpliced(1, 2, 0)]);
});
