// What a writer changes: in place in the cells, and as the change set that the gateway keeps and ships.
//
// An object that the run has put in itself is in the change set by reference, so that what is changed in it later needs
// neither a further entry nor an old value. `shift`, `unshift` and `splice` are one entry with what they put in, unless
// there are many; `sort` and `reverse` make the whole array one. Sets of one place are one entry, unless something was removed from the same
// object in between.
//
// Not kept is the order of an object's members: undoing a deletion puts the member at the end.

import { VALUE, cut, put, splice } from "./state.js";
import { StateError, copied, kept, keptKey, step } from "./values.js";
import { free, keyIn } from "./views.js";

const { isArray } = Array;
const { hasOwn } = Object;
const { stringify } = JSON;
/** After so many times an array that is spliced once more is one entry: each time moves what stands behind it. */
const SPLICES = 16;

export class Transaction {
  /** @type {unknown[][]} the change set */
  #ops = [];
  /** @type {Map<object, Map<string | number, unknown[]>>} the entry that set a place */
  #places = new Map();
  /** Roots of the trees that this run has put in. */
  #fresh = new Set();
  /** Arrays that are in the change set as a whole. */
  #whole = new Set();
  /** @type {Map<object, number>} how often arrays were spliced */
  #spliced = new Map();
  /** @type {[import("./state.js").Cell, number][]} cells written, and their versions before */
  #touched = [];
  /** Of the place that was located last. */
  #isNew = false;
  #isCovered = false;
  #depth = 0;

  /** @param {number} version that it makes */
  constructor(run, version) {
    this.run = run;
    this.version = version;
  }

  /** Ends it, and gives the text of the change set; empty if nothing changed. */
  commit() {
    return this.#ops.length > 0 ? stringify(this.#ops) : "";
  }

  undo() {
    for (const [cell, before] of this.#touched) cell.undo(this.version, before);
  }

  setCell(slot, value) {
    const { slots, names } = this.run;
    const cell = slots[slot];
    const copy = value === undefined ? undefined : kept(value, () => names[slot]);
    const { holder } = cell;
    if (copy === holder.value && typeof copy !== "object") return;
    this.#touch(cell);
    cell.note(holder, VALUE, holder.value, this.version);
    holder.value = copy;
    if (typeof copy === "object") this.#fresh.add(copy);
    const op = this.#op(holder, VALUE, () => [slot, []]);
    if (copy === undefined) op.length = 2;
    else op[2] = copy;
  }

  /** Sets a member of an object, an element of an array, or its length. */
  set(node, key, value) {
    const { raw } = node;
    if (typeof key === "symbol") throw refusal(node, "can't have a symbol as a member");
    if (!isArray(raw)) return this.#put(node, keptKey(key, () => node.name()), value);
    if (key === "length") return this.#cut(node, value);
    const index = indexOf(key);
    if (index === undefined) throw refusal(node, `can't have \`${key}\`: an array has elements only`);
    if (index > raw.length) throw hole(node, index);
    this.#put(node, index, value);
  }

  delete(node, key) {
    const { raw, cell } = node;
    if (!hasOwn(raw, key)) return;
    if (isArray(raw)) throw hole(node, key);
    this.#locate(node);
    this.#touch(cell);
    if (!this.#isNew) cell.note(raw, key, raw[key], this.version);
    delete raw[key];
    if (this.#isCovered) return;
    this.#places.delete(raw);
    this.#ops.push([...this.#place(node, key)]);
  }

  /** A method that changes an array. What it takes out belongs to the handler, like any array's elements. */
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
        this.#splice(node, 0, 0, all);
        return raw.length;
      case "splice":
        return this.#splice(node, ...spliced(raw.length, all));
      case "sort":
        this.#sort(node, all[0]);
        return node.proxy;
      case "reverse":
        this.#move(node, () => raw.reverse());
        return node.proxy;
      default:
        return this.#overwrite(node, name, all);
    }
  }

  #put(node, key, value) {
    const { raw, cell } = node;
    const copy = kept(value, () => node.name() + step(key), this.#locate(node));
    // The value's own getters may have changed the state.
    if (typeof value === "object") this.#locate(node);
    if (copy === raw[key] && typeof copy !== "object" && hasOwn(raw, key)) return;
    this.#touch(cell);
    if (this.#isNew) raw[key] = copy;
    else put(cell, raw, key, copy, this.version);
    if (typeof copy === "object" && copy !== null) this.#fresh.add(copy);
    if (!this.#isCovered) this.#op(raw, key, () => this.#place(node, key))[2] = copy;
  }

  #cut(node, length) {
    const { raw, cell } = node;
    if (length === raw.length) return;
    if (!Number.isInteger(length) || length < 0) throw new RangeError("Invalid array length");
    if (length > raw.length) throw hole(node, length - 1);
    this.#locate(node);
    this.#touch(cell);
    if (this.#isNew) raw.length = length;
    else cut(cell, raw, length, this.version);
    if (this.#isCovered) return;
    this.#places.delete(raw);
    this.#ops.push([...this.#place(node, "length"), length]);
  }

  #splice(node, start, count, values) {
    const { raw } = node;
    const added = values.map((value, i) => kept(value, () => node.name() + step(start + i), this.#locate(node)));
    const removed = raw.slice(start, start + count).map(copied);
    if (start + count === raw.length) {
      if (count > 0) this.#cut(node, start);
      for (const value of added) this.#put(node, raw.length, value);
    } else if (added.length !== count) {
      const times = (this.#spliced.get(raw) ?? 0) + 1;
      this.#spliced.set(raw, times);
      const change = () => splice(raw, start, count, added);
      if (times > SPLICES) this.#move(node, change);
      else if (!this.#change(node, change)) this.#ops.push([...this.#place(node, start), count, added]);
      for (const value of added) if (typeof value === "object" && value !== null) this.#fresh.add(value);
    } else {
      added.forEach((value, i) => this.#put(node, start + i, value));
    }
    return removed;
  }

  #sort(node, compare) {
    const { raw } = node;
    const pairs = node.elements().map((seen, i) => ({ seen, text: compare ? "" : String(seen), value: raw[i] }));
    const byText = (a, b) => Number(a.text > b.text) - Number(a.text < b.text);
    pairs.sort(compare ? (a, b) => compare(a.seen, b.seen) : byText);
    if (pairs.length !== raw.length) throw refusal(node, "changed while it was sorted");
    this.#move(node, () => pairs.forEach(({ value }, i) => (raw[i] = value)));
  }

  /** `fill` and `copyWithin`: element by element. */
  #overwrite(node, name, all) {
    const after = node.raw.slice();
    Reflect.apply(after[name], after, name === "fill" ? [free(all[0]), ...all.slice(1)] : all);
    after.forEach((value, i) => value !== node.raw[i] && this.#put(node, i, value));
    return node.proxy;
  }

  /** Changes an array as a whole. Whether the change set has it already. */
  #change(node, change) {
    const { raw, cell } = node;
    this.#locate(node);
    this.#touch(cell);
    if (!this.#isNew) cell.noteWhole(raw, this.version);
    change();
    if (!this.#isCovered) this.#places.delete(raw);
    return this.#isCovered;
  }

  #move(node, change) {
    const { raw } = node;
    if (this.#change(node, change)) return;
    this.#whole.add(raw);
    const place = this.#place(node, 0);
    place[1].pop();
    this.#ops.push([...place, raw]);
  }

  /** Finds out whether a view is still in the tree, and what of its place is in the change set. Gives its depth. */
  #locate(node) {
    this.#isNew = this.#isCovered = false;
    this.#depth = 1;
    let at = node;
    for (; ; at = at.parent) {
      if (this.#fresh.has(at.raw)) this.#isNew = this.#isCovered = true;
      else if (this.#whole.has(at.raw)) this.#isCovered = true;
      if (at.parent === undefined) break;
      if (at.parent.raw[at.key] !== at.raw) throw moved(node);
      this.#depth++;
    }
    if (at.cell.holder.value !== at.raw) throw moved(node);
    return this.#depth;
  }

  /** The slot and the path of a member. */
  #place(node, key) {
    const path = [keyIn(node.raw, key)];
    let at = node;
    for (; at.parent !== undefined; at = at.parent) path.push(keyIn(at.parent.raw, at.key));
    return [at.key, path.reverse()];
  }

  #op(target, key, place) {
    let ops = this.#places.get(target);
    if (ops === undefined) this.#places.set(target, (ops = new Map()));
    let op = ops.get(key);
    if (op === undefined) {
      ops.set(key, (op = place()));
      this.#ops.push(op);
    }
    return op;
  }

  #touch(cell) {
    if (cell.version === this.version) return;
    this.#touched.push([cell, cell.version]);
    cell.version = this.version;
  }
}

/** The number of an array's element, if the key is one. */
function indexOf(key) {
  const index = Number(key);
  return String(index >>> 0) === String(key) && index < 4294967295 ? index : undefined;
}

/** Start, count and values of a call of `splice`. */
function spliced(length, [start, count, ...values]) {
  const from = relative(start, length);
  const most = length - from;
  const given = Math.trunc(Number(count)) || 0;
  const isToEnd = count === undefined && values.length === 0 && start !== undefined;
  return [from, isToEnd ? most : Math.min(Math.max(given, 0), most), values];
}

function relative(index, length) {
  const whole = Math.trunc(Number(index)) || 0;
  return whole < 0 ? Math.max(length + whole, 0) : Math.min(whole, length);
}

function refusal(node, why) {
  return new StateError(`\`${node.name()}\` ${why} (S rule 8)`);
}

function hole(node, key) {
  return new StateError(`\`${node.name()}${step(Number(key))}\` would leave a hole in the array (S rule 8)`);
}

function moved(node) {
  return new StateError(`\`${node.name()}\` was moved or removed since it was read: read it again (S rule 8)`);
}
