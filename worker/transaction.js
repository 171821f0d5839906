// A writer's changes: made in place in the cells, and converted to a change set for the gateway.
//
// References are those of JavaScript until the handler ends: an assigned object is stored in the raw tree as
// the same object (`assigned`), and so are objects that are moved or removed. An object may thus occur at
// several positions or none, and circles may exist temporarily. On commit, settle.js determines the final
// values at the changed positions (drafts.js) and replaces them by copies: the state is a tree again.

import { ArrayDraft, ObjectDraft } from "./drafts.js";
import { Settlement, isInState } from "./settle.js";
import { Cell, cut, put, splice } from "./state.js";
import { NODE, StateError, check, keptKey, namedElement, refusal, scalar, step } from "./values.js";

const { isArray } = Array;
const { hasOwn, freeze } = Object;

export class Transaction {
  /** The handler's objects in the state; undefined before the first. @type {Set<object> | undefined} */
  assigned;
  /** The changes of previously existing objects and arrays. @type {Map<object, ObjectDraft | ArrayDraft>} */
  drafts = new Map();
  /** The previous values of cells that have changed, wholly or in part, by slot. @type {Map<number, unknown>} */
  roots = new Map();
  /** @type {[Cell, number][]} written cells, and their previous versions */
  #touched = [];
  /** Whether an assigned object is being read, whose getters must not change the state. */
  #isReading = false;

  /** @param {number} version the version that it produces */
  constructor(run, version) {
    this.run = run;
    this.version = version;
  }

  /**
   * Ends the transaction, and returns the text of the change set; empty without changes. Throws if a value
   * can't be stored.
   */
  commit() {
    return this.#settle().text();
  }

  /**
   * Commits before the run ends: afterwards the run can change objects that it has removed from the state,
   * but not the state.
   */
  commitEarly() {
    const settled = this.#settle((settled) => this.#release(settled.copy.raws));
    // Assigned objects are frozen as well, since changes of them would have no effect.
    settled.copy.made.forEach(freeze);
    return settled.text();
  }

  undo() {
    for (const [cell, before] of this.#touched) cell.undo(this.version, before);
  }

  setCell(slot, value) {
    const { slots, names } = this.run;
    const cell = slots[slot];
    const next = this.#taken(value, () => names[slot], undefined);
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

  /** Executes a method that modifies an array, as specified by ECMAScript. */
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

  /** Returns the raw value for an assigned value. */
  #taken(value, name, target) {
    if (typeof value !== "object" || value === null) return scalar(value, name);
    const node = value[NODE];
    if (node !== undefined && node.writer === this) {
      this.assigned ??= new Set();
      if (isWithin(target, node)) throw refusal(name(), "a circle (it contains itself)");
      return node.raw;
    }
    // A view of another run, or of an object that this run has committed, is copied in its current form.
    const own = node === undefined ? value : node.copy();
    this.#reading(() => check(own, name, depthOf(target)));
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

  /** Returns the raw values of elements as the handler sees them: each has a view with its original position. */
  #rawOf(node, elements) {
    return elements.map((value) => this.#taken(value, () => node.name(), undefined));
  }

  /** Changes the order of an array's elements. */
  #reorder(node, order) {
    const { raw } = node;
    // The comparison function may have changed the length.
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

  /** Returns the draft of an array whose elements are about to move. */
  #begin(node) {
    this.#touch(node.cell);
    const draft = /** @type {ArrayDraft} */ (this.#draft(node));
    node.cell.noteWhole(node.raw, this.version);
    return draft;
  }

  /** @returns {any} the draft of an object or array */
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

  /**
   * Reads assigned objects.
   * @template T
   * @param {() => T} read
   * @returns {T}
   */
  #reading(read) {
    this.#refuseGetter();
    this.#isReading = true;
    try {
      return read();
    } finally {
      this.#isReading = false;
    }
  }

  #refuseGetter() {
    if (this.#isReading) throw new StateError("a getter of an object in state can't change state (S rule 8)");
  }

  #touch(cell) {
    this.#refuseGetter();
    if (cell.version === this.version) return;
    this.#touched.push([cell, cell.version]);
    cell.version = this.version;
  }

  /** @param {(settled: Settlement) => void} before called before the copies are put in place */
  #settle(before = () => {}) {
    const settled = this.#reading(() => new Settlement(this));
    if (settled.ops.length === 0) {
      this.undo();
    } else {
      before(settled);
      settled.putInPlace();
    }
    return settled;
  }

  /**
   * Turns removed objects into the handler's own copies. `raws` are the objects that are now at other
   * positions of the state.
   */
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

  /** Returns a copy that preserves the identity of the handler's objects, and of objects at several positions. */
  #copyOf(value, made) {
    if (typeof value !== "object" || value === null || this.assigned?.has(value)) return value;
    let copy = made.get(value);
    if (copy !== undefined) return copy;
    made.set(value, (copy = isArray(value) ? [] : {}));
    for (const key of Object.keys(value)) if (value[key] !== undefined) copy[key] = this.#copyOf(value[key], made);
    return copy;
  }
}

/** Whether a position is known to be inside an object. Objects that have moved are checked on commit. */
function isWithin(target, node) {
  for (let at = target; at !== undefined; at = at.parent) {
    if (at === node) return true;
    if (at.parent?.raw[at.key] !== at.raw) return false;
  }
  return false;
}

/** Returns the nesting depth of this object's members. */
function depthOf(node) {
  let depth = 0;
  for (let at = node; at !== undefined; at = at.parent) depth++;
  return depth;
}

/** Returns the index of an array's element, if the key is one. */
function indexOf(key) {
  const index = Number(key);
  return String(index >>> 0) === String(key) && index < 4294967295 ? index : undefined;
}

/** Converts a value that is assigned to an array's length. */
function lengthOf(value) {
  const length = +value;
  if (length >>> 0 !== length) throw new RangeError("Invalid array length");
  return length;
}

/** Returns the start, count and values for a call of `splice`. */
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
