// What a writer changes: in place in the cells, and as the change set that the gateway keeps and ships.
//
// References are those of JavaScript until the handler ends: what it assigns stands in the raw tree as the very object
// (`assigned`), what it moves or takes out as what it is. So one object may stand in several places, or in none, and a
// circle may be made and undone. When the transaction commits, settle.js finds out what has become of the places that
// were changed (drafts.js), and puts copies there: the state is a tree again.

import { ArrayDraft, ObjectDraft } from "./drafts.js";
import { Settlement, isInState } from "./settle.js";
import { Cell, cut, put, splice } from "./state.js";
import { NODE, StateError, check, keptKey, namedElement, refusal, scalar, step } from "./values.js";

const { isArray } = Array;
const { hasOwn, freeze } = Object;

export class Transaction {
  /** Objects of the handler's that it has put into the state; none before it has put, or moved, the first. @type {Set<object> | undefined} */
  assigned;
  /** What was changed of objects and arrays that were there before. @type {Map<object, ObjectDraft | ArrayDraft>} */
  drafts = new Map();
  /** Whole values of cells that have changed, or something in them: their slots, with what they were. @type {Map<number, unknown>} */
  roots = new Map();
  /** @type {[Cell, number][]} cells written, and their versions before */
  #touched = [];

  /** @param {number} version that it makes */
  constructor(run, version) {
    this.run = run;
    this.version = version;
  }

  /** Ends it, and gives the text of the change set; empty if nothing changed. Throws what can't be kept. */
  commit() {
    return this.#settle().text();
  }

  /** The same before the run ends: from here on it can change what it has taken out of the state, and nothing in it. */
  commitEarly() {
    const settled = this.#settle((settled) => this.#release(settled.copy.raws));
    // Not the objects that it has assigned either: to change them would change nothing.
    settled.copy.made.forEach(freeze);
    return settled.text();
  }

  undo() {
    for (const [cell, before] of this.#touched) cell.undo(this.version, before);
  }

  setCell(slot, value) {
    const { slots, names } = this.run;
    const cell = slots[slot];
    const next = value === undefined ? undefined : this.#taken(value, () => names[slot], undefined);
    const old = cell.holder.value;
    if (next === old) return;
    this.#touch(cell);
    if (!this.roots.has(slot)) this.roots.set(slot, old);
    cell.set(next, this.version);
  }

  /** Sets a member of an object, an element of an array, or its length. */
  set(node, key, value) {
    const { raw } = node;
    if (typeof key === "symbol") throw problem(node, "can't have a symbol as a member");
    if (!isArray(raw)) return this.#put(node, keptKey(key, () => node.name()), value);
    if (key === "length") return this.#cut(node, lengthOf(value));
    const index = indexOf(key);
    if (index === undefined) throw namedElement(node.name(), key);
    this.#put(node, index, value);
  }

  delete(node, key) {
    const { raw, cell } = node;
    if (!hasOwn(raw, key) || raw[key] === undefined) return;
    if (isArray(raw)) throw hole(node, key);
    this.#touch(cell);
    this.#draft(node).remove(key);
    cell.remove(raw, key, this.version);
  }

  /** A method that changes an array, as ECMAScript says. */
  rearrange(node, name, all) {
    const { raw } = node;
    switch (name) {
      case "push":
        for (const value of all) this.#put(node, raw.length, value);
        return raw.length;
      case "pop":
        return raw.length === 0 ? undefined : this.#splice(node, raw.length - 1, 1, [])[0];
      case "shift":
        return raw.length === 0 ? undefined : this.#splice(node, 0, 1, [])[0];
      case "unshift":
        if (all.length > 0) this.#splice(node, 0, 0, all);
        return raw.length;
      case "splice":
        return this.#splice(node, ...spliced(raw.length, all));
      case "sort":
        return this.#sort(node, all[0]);
      case "reverse":
        return this.#reorder(node, raw.toReversed());
      case "fill":
        return this.#fill(node, all);
      default:
        return this.#overwrite(node, this.#rawOf(node, node.elements().copyWithin(all[0], all[1], all[2])));
    }
  }

  #put(node, key, value) {
    this.#store(node, key, this.#taken(value, () => node.name() + step(key), node));
  }

  /** What stands in the raw tree for a value that is assigned. */
  #taken(value, name, target) {
    if (typeof value !== "object" || value === null) return scalar(value, name);
    const node = value[NODE];
    if (node !== undefined && node.writer === this) {
      this.assigned ??= new Set();
      if (isWithin(target, node)) throw refusal(name(), "a circle (it contains itself)");
      return node.raw;
    }
    // A view of another run, or of what this one has committed, is what it was then.
    const own = node === undefined ? value : node.copy();
    check(own, name, depthOf(target));
    (this.assigned ??= new Set()).add(own);
    return own;
  }

  #store(node, key, next) {
    const { raw, cell } = node;
    if (isArray(raw) && key > raw.length) throw hole(node, key);
    if (next === raw[key] && hasOwn(raw, key)) return;
    this.#touch(cell);
    this.#draft(node).put(key);
    put(cell, raw, key, next, this.version);
  }

  #cut(node, length) {
    const { raw, cell } = node;
    if (length === raw.length) return;
    if (length > raw.length) throw hole(node, length - 1);
    this.#touch(cell);
    this.#draft(node).cut(length);
    cut(cell, raw, length, this.version);
  }

  #splice(node, start, count, values) {
    const { raw } = node;
    const next = values.map((value, i) => this.#taken(value, () => node.name() + step(start + i), node));
    const removed = raw.slice(start, start + count).map((value, i) => node.seen(value, start + i));
    if (start + count >= raw.length) {
      if (count > 0) this.#cut(node, start);
      for (const value of next) this.#store(node, raw.length, value);
    } else if (next.length === count) {
      next.forEach((value, i) => this.#store(node, start + i, value));
    } else {
      this.#begin(node).splice(start, count, next.length);
      splice(raw, start, count, next);
    }
    return removed;
  }

  #sort(node, compare) {
    return this.#reorder(node, this.#rawOf(node, node.elements().sort(compare)));
  }

  /** What stands in the raw tree for elements as the handler sees them: each has its view, which knows where it stood. */
  #rawOf(node, elements) {
    return elements.map((value) => this.#taken(value, () => node.name(), undefined));
  }

  /** Puts elements of an array into another order. */
  #reorder(node, order) {
    const { raw } = node;
    // A function that compares may have made it longer or shorter.
    if (order.length !== raw.length) return this.#overwrite(node, order);
    if (order.some((value, i) => value !== raw[i])) {
      this.#begin(node).move();
      order.forEach((value, i) => (raw[i] = value));
    }
    return node.proxy;
  }

  #fill(node, [value, from, to]) {
    const place = {};
    const after = node.raw.slice().fill(place, from, to);
    const first = after.indexOf(place);
    if (first < 0) return node.proxy;
    const next = this.#taken(value, () => node.name() + step(first), node);
    return this.#overwrite(node, after.map((old) => (old === place ? next : old)));
  }

  /** Sets elements, from the first on. */
  #overwrite(node, after) {
    after.forEach((value, i) => this.#store(node, i, value));
    return node.proxy;
  }

  /** The draft of an array whose elements are about to move. */
  #begin(node) {
    this.#touch(node.cell);
    const draft = /** @type {ArrayDraft} */ (this.#draft(node));
    node.cell.noteWhole(node.raw, this.version);
    return draft;
  }

  /** @returns {any} what has changed of an object or array */
  #draft(node) {
    let draft = this.drafts.get(node.raw);
    if (draft !== undefined) return draft;
    draft = isArray(node.raw) ? new ArrayDraft(node.raw) : new ObjectDraft(node.raw);
    this.drafts.set(node.raw, draft);
    const { parent } = node;
    if (parent !== undefined) this.#draft(parent).children.set(node.raw, node);
    else if (!this.roots.has(node.key)) this.roots.set(node.key, node.raw);
    return draft;
  }

  #touch(cell) {
    if (cell.version === this.version) return;
    this.#touched.push([cell, cell.version]);
    cell.version = this.version;
  }

  /** @param {(settled: Settlement) => void} before what is done before anything is put in place */
  #settle(before = () => {}) {
    const settled = new Settlement(this);
    if (settled.ops.length === 0) {
      this.undo();
    } else {
      before(settled);
      settled.putInPlace();
    }
    return settled;
  }

  /** Gives the handler what it has taken out of the state, for itself. `raws` are those that stand elsewhere now. */
  #release(raws) {
    const { run } = this;
    const known = new Map();
    const own = [...(run.nodes?.values() ?? [])].filter((node) => !isInState(this, node, raws, known));
    if (own.length === 0) return;
    const scratch = new Transaction(run, 0);
    scratch.assigned = this.assigned;
    const cell = new Cell(undefined, 0);
    const made = new Map();
    for (const node of own) {
      run.nodes.delete(node.raw);
      node.raw = this.#copyOf(node.raw, made);
      node.cell = cell;
      node.scratch = scratch;
      run.nodes.set(node.raw, node);
    }
  }

  /** A copy in which the handler's objects are the same ones, as are those that stand in two places. */
  #copyOf(value, made) {
    if (typeof value !== "object" || value === null || this.assigned?.has(value)) return value;
    let copy = made.get(value);
    if (copy !== undefined) return copy;
    made.set(value, (copy = isArray(value) ? [] : {}));
    for (const key of Object.keys(value)) if (value[key] !== undefined) copy[key] = this.#copyOf(value[key], made);
    return copy;
  }
}

/** Whether a place is seen to be in an object. What moved since is seen when the transaction commits. */
function isWithin(target, node) {
  for (let at = target; at !== undefined; at = at.parent) {
    if (at === node) return true;
    if (at.parent?.raw[at.key] !== at.raw) return false;
  }
  return false;
}

/** How many objects and arrays a member of this one is in. */
function depthOf(node) {
  let depth = 0;
  for (let at = node; at !== undefined; at = at.parent) depth++;
  return depth;
}

/** The number of an array's element, if the key is one. */
function indexOf(key) {
  const index = Number(key);
  return String(index >>> 0) === String(key) && index < 4294967295 ? index : undefined;
}

/** What is set as an array's length. */
function lengthOf(value) {
  const length = +value;
  if (length >>> 0 !== length) throw new RangeError("Invalid array length");
  return length;
}

/** Start, count and values of a call of `splice`. */
function spliced(length, all) {
  const [start, count, ...values] = all;
  const from = relative(start, length);
  if (all.length < 2) return [from, all.length === 0 ? 0 : length - from, values];
  return [from, Math.min(Math.max(whole(count), 0), length - from), values];
}

function relative(index, length) {
  const at = whole(index);
  return at < 0 ? Math.max(length + at, 0) : Math.min(at, length);
}

function whole(number) {
  return Math.trunc(+number) || 0;
}

function problem(node, why) {
  return new StateError(`\`${node.name()}\` ${why} (S rule 8)`);
}

function hole(node, key) {
  return new StateError(`\`${node.name()}${step(Number(key))}\` would leave a hole in the array (S rule 8)`);
}
