// `par` and `pfor` compared with sequential execution: random graphs of units that end in any order, throw or
// leave.
import assert from "node:assert/strict";
import { test } from "node:test";

import { par, pfor } from "../par.js";
import { law } from "./random.js";

const turns = async (count) => {
  for (let i = 0; i < count; i++) await null;
};

/** Generates the behaviour of units: after a number of turns they end, throw, or leave with a value. */
function behaviours(r, count) {
  return Array.from({ length: count }, (_, index) => {
    const end = r.chance(0.1) ? "throw" : r.chance(0.1) ? "leave" : "end";
    return { index, end, turns: r.below(6), early: r.chance(0.1) };
  });
}

async function play({ index, end, turns: count, early }, events) {
  events.push(["start", index]);
  if (!early) await turns(count);
  events.push(["end", index]);
  if (end === "throw") throw new Error(`unit ${index}`);
  return end === "leave" ? `left ${index}` : undefined;
}

/** Returns the outcome of a promise, for comparison. */
const outcome = (promise) => promise.then((value) => ["value", value], (error) => ["error", error.message]);

async function sequentially(units) {
  for (const unit of units) {
    const left = await unit();
    if (left !== undefined) return left;
  }
  return undefined;
}

test("rule 18: `par` has the result of sequential execution, and starts a unit once its dependencies are done", () =>
  law(400, async (r) => {
    const units = behaviours(r, r.below(9));
    // A unit that may throw or leave is a barrier, as in the compiler; otherwise later ones could have
    // started.
    const needs = units.map((_, i) => units.slice(0, i).map(({ index }) => index).filter((j) => units[j].end === "leave" || r.chance(0.3)));
    const events = [];
    const result = await outcome(par(units.map((unit, i) => [needs[i], () => play(unit, events)])));
    const started = events.filter(([what]) => what === "start").map(([, index]) => index);
    const ended = events.filter(([what]) => what === "end").map(([, index]) => index);
    assert.deepEqual(new Set(ended), new Set(started), "all started units have ended at the end");
    for (const index of started) {
      for (const need of needs[index]) assert.ok(events.findIndex(([what, i]) => what === "end" && i === need) < events.findIndex(([, i]) => i === index));
    }
    const expected = await outcome(sequentially(units.filter(({ index }) => started.includes(index)).map((unit) => () => play(unit, []))));
    assert.deepEqual(result, expected);
    if (result[1] === undefined) assert.equal(started.length, units.length);
  }));

test("rule 18: no unit starts after one has thrown, and the first error in program order is thrown", async () => {
  const events = [];
  const unit = (index, end, turns) => () => play({ index, end, turns }, events);
  const all = par([[[], unit(0, "throw", 5)], [[], unit(1, "throw", 1)], [[1], unit(2, "end", 0)], [[], unit(3, "end", 9)]]);
  await assert.rejects(all, { message: "unit 0" });
  assert.deepEqual(events.map(([what, index]) => what + index), ["start0", "start1", "start3", "end1", "end0", "end3"]);
});

test("rule 19: `pfor` has the result of a loop, with a limited number of concurrent units", () =>
  law(400, async (r) => {
    const units = behaviours(r, r.below(12));
    const most = 1 + r.below(4);
    const events = [];
    let running = 0;
    let highest = 0;
    const unit = async (i) => {
      highest = Math.max(highest, ++running);
      try {
        return await play(units[i], events);
      } finally {
        running--;
      }
    };
    const result = await outcome(pfor(units, unit, most));
    assert.ok(highest <= most);
    assert.equal(running, 0, "all units are done at the end");
    const started = events.filter(([what]) => what === "start").map(([, index]) => index);
    assert.deepEqual(started, started.map((_, i) => i), "they start in order");
    const expected = await outcome(sequentially(units.slice(0, started.length).map((unit) => () => play(unit, []))));
    assert.deepEqual(result, expected);
    if (result[1] === undefined) assert.equal(started.length, units.length);
  }));

test("rule 19: arrays and strings are iterated by index, objects by their own keys, in order", async () => {
  const keysOf = async (collection) => {
    const keys = [];
    await pfor(collection, async (i) => void keys.push(i), 64);
    return keys;
  };
  assert.deepEqual(await keysOf(["a", "b"]), [0, 1]);
  assert.deepEqual(await keysOf([1, , 3]), [0, 2]);
  assert.deepEqual(await keysOf("ab"), [0, 1]);
  assert.deepEqual(await keysOf(new Uint8Array(2)), [0, 1]);
  assert.deepEqual(await keysOf(Object.create({ up: 1 }, { own: { value: 1, enumerable: true } })), ["own"]);
  assert.deepEqual(await keysOf({ b: 1, a: 2 }), ["b", "a"]);
  for (const nothing of [null, undefined, 5, true, [], {}]) assert.deepEqual(await keysOf(nothing), []);
});
