// Cells of a worker without the worker: runs are opened on them, and their change sets are applied naively.
import assert from "node:assert/strict";

import { Run } from "../run.js";
import { Cells } from "../state.js";
import { viewClass } from "../views.js";

export const NAMES = ["one", "two"];
const handler = { names: NAMES, Cells: viewClass(NAMES) };
const clone = (value) => (value === undefined ? undefined : structuredClone(value));
/** Returns a copy as a tree, as in state. */
export const unfolded = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));

/** Returns a substitute for the worker of a run. */
function fakeWorker() {
  const frames = [];
  const frame = new Proxy({}, { get: (_, name) => (...all) => (frames.push([name, ...all]), frame) });
  return { outbox: frame, frames, ended() {}, answered() {}, waiting: new Map() };
}

export class Side {
  cells = new Cells();
  constructor(first) {
    first.forEach((value, cell) => this.cells.receive(cell, value === undefined ? 2 : 0, 0, JSON.stringify(value)));
  }

  open(version, durable, isWriter) {
    const worker = fakeWorker();
    const run = new Run(worker, 1, undefined, isWriter ? 2 : 0);
    const cells = NAMES.map((_, id) => this.cells.find(id, isWriter ? Infinity : version, durable));
    run.open(handler, cells, version, isWriter);
    run.follow({ then() {} });
    return { run, worker, view: run.cells, version };
  }
}

/** Returns the changes in END or COMMIT. */
export function changesOf({ frames }) {
  const at = frames.findLastIndex(([name, type]) => name === "begin" && (type === 71 || type === 69));
  const texts = frames.slice(at).filter(([name]) => name === "text").map(([, text]) => text);
  const changes = texts.at(-1) ?? "";
  return changes === "" ? [] : JSON.parse(changes);
}

/** Applies a change set like the gateway, in a naive way. */
export function applied(cells, ops) {
  const holder = { cells: clone(cells) };
  for (const [slot, path, ...set] of ops) {
    const [last, ...above] = ["cells", slot, ...path].reverse();
    let target = holder;
    for (const step of above.reverse()) {
      assert.ok(target !== null && typeof target === "object" && Object.hasOwn(target, step), `no ${step} of ${path}`);
      target = target[step];
    }
    if (set.length === 2) {
      assert.ok(Array.isArray(target) && last + set[0] <= target.length, `${last} and ${set[0]} of ${target.length}`);
      target.splice(last, set[0], ...set[1]);
    } else if (set.length === 0) {
      assert.ok(Object.hasOwn(target, last));
      if (path.length === 0) target[last] = undefined;
      else delete target[last];
    } else if (Array.isArray(target) && path.length > 0 && last !== "length") {
      assert.ok(Number.isInteger(last) && last <= target.length, `${last} of ${target.length}`);
      target[last] = set[0];
    } else {
      if (Array.isArray(target) && last === "length") assert.ok(set[0] <= target.length);
      target[last] = set[0];
    }
  }
  return holder.cells;
}

/** Opens a writer on these values, and a function that returns its change set. */
export function writer(one, two) {
  const side = new Side([one, two]);
  const opened = side.open(0, 0, true);
  return { ...opened, side, ops: () => (opened.run.finish(), changesOf(opened.worker)) };
}
