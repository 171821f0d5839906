// What a handler sees of its cells: an object with a member for each, and behind it a proxy for every object and array
// that it looks at. The proxies read the raw tree, or around what was written since the run's version (state.js).
//
// A run that writes has a transaction; its version is then Infinity, so that it reads the newest. Once it has committed
// it is a reader of what it has made.

import { randomUUID } from "node:crypto";

import { ABSENT, VALUE } from "./state.js";
import { NODE, StateError, copied, step } from "./values.js";

const { hasOwn, defineProperty } = Object;
const { isArray } = Array;

/** How a member is that was assigned. */
const ORDINARY = { writable: true, enumerable: true, configurable: true };

/** Set while the worker itself makes JSON of an answer: views then give their raw trees. */
let giving = false;

/** What stands for JSON that goes into an answer as it is. No data has it: nobody else knows it, and it never leaves. */
const MARK = randomUUID();
const QUOTED = JSON.stringify(MARK);
/** The texts that marks stand for, in order. @type {string[]} */
let texts = [];

/** JSON that nobody reads, as it came. */
export class Verbatim {
  #text;

  /** @param {string} text */
  constructor(text) {
    this.#text = text;
  }

  toJSON() {
    texts.push(this.#text);
    return MARK;
  }
}

/** The JSON of a value with views in it; made without proxies where nothing was written since. */
export function stringify(value) {
  const before = texts;
  texts = [];
  giving = true;
  try {
    const text = JSON.stringify(value);
    return texts.length === 0 ? text : unmarked(text);
  } finally {
    giving = false;
    texts = before;
  }
}

function unmarked(text) {
  const parts = text.split(QUOTED);
  let whole = parts[0];
  for (let i = 0; i < texts.length; i++) whole += texts[i] + parts[i + 1];
  return whole;
}

/**
 * The class of a handler's `$r.cells`.
 * @param {string[]} names of the cells, in the order in which RUN names them
 */
export function viewClass(names) {
  class Cells {
    #run;
    constructor(run) {
      this.#run = run;
    }
    static {
      names.forEach((name, slot) => {
        /** @type {PropertyDescriptor & ThisType<any>} */
        const accessor = {
          // @ts-expect-error: a prototype is no descriptor's
          __proto__: null,
          get() {
            return readCell(this.#run, slot);
          },
          set(value) {
            writable(this.#run, name).setCell(slot, value);
          },
          enumerable: true,
        };
        defineProperty(this.prototype, name, accessor);
      });
    }
  }
  return Cells;
}

function readCell(run, slot) {
  const cell = run.slots[slot];
  const value = cell.version <= run.version ? cell.holder.value : cell.at(cell.holder, VALUE, run.version);
  return typeof value === "object" && value !== null ? nodeOf(run, cell, value, undefined, slot).proxy : value;
}

/** The transaction of a run that may write. */
function writable(run, name) {
  if (run.transaction !== undefined) return run.transaction;
  throw new TypeError(`state \`${name}\` can't be changed: ${run.whyReadOnly()}`);
}

/** A run has one view of each object, so that it is equal to itself. */
function nodeOf(run, cell, raw, parent, key) {
  const nodes = (run.nodes ??= new Map());
  let node = nodes.get(raw);
  if (node === undefined) nodes.set(raw, (node = new Node(run, cell, raw)));
  // An array's elements move.
  node.parent = parent;
  node.key = key;
  return node;
}

/** A view, and the handler of its proxy. */
export class Node {
  /** @type {Node | undefined} none where it is the cell's value; `key` is the slot then */
  parent;
  /** @type {string | number | undefined} */
  key;

  constructor(run, cell, raw) {
    this.run = run;
    this.cell = cell;
    this.raw = raw;
    this.proxy = new Proxy(raw, /** @type {ProxyHandler<any>} */ (/** @type {unknown} */ (this)));
  }

  /** Whether nothing was written since the run's version. */
  get current() {
    return this.cell.version <= this.run.version;
  }

  /** A member as a handler sees it. */
  member(key) {
    const { raw, cell, run } = this;
    const value = cell.version <= run.version ? (hasOwn(raw, key) ? raw[key] : ABSENT) : cell.at(raw, key, run.version);
    return typeof value === "object" && value !== null ? nodeOf(run, cell, value, this, key).proxy : value;
  }

  get length() {
    return this.current ? this.raw.length : this.cell.at(this.raw, "length", this.run.version);
  }

  /** The elements of an array, as a handler sees them, in an array of their own. */
  elements() {
    if (this.current) {
      return this.raw.map((value, i) => (typeof value === "object" && value !== null ? this.member(i) : value));
    }
    return Array.from({ length: this.length }, (_, i) => this.member(String(i)));
  }

  /** A copy that belongs to the handler. */
  copy() {
    if (this.current) return copied(this.raw);
    if (isArray(this.raw)) return this.elements().map(free);
    const copy = {};
    for (const key of this.cell.keysAt(this.raw, this.run.version)) copy[key] = free(this.member(key));
    return copy;
  }

  /** How the place is called in errors. */
  name() {
    let name = "";
    let node = /** @type {Node} */ (this);
    for (; node.parent !== undefined; node = node.parent) name = step(keyIn(node.parent.raw, node.key)) + name;
    return this.run.names[/** @type {number} */ (node.key)] + name;
  }

  get(raw, key) {
    if (typeof key === "symbol") return key === NODE ? this : this.#symbol(raw, key);
    const value = this.cell.version <= this.run.version ? raw[key] : this.cell.at(raw, key, this.run.version);
    if (typeof value === "object" && value !== null) {
      return hasOwn(raw, key) || !this.current ? nodeOf(this.run, this.cell, value, this, key).proxy : value;
    }
    if (value === ABSENT) return this.#inherited(raw, key);
    return value === undefined || typeof value === "function" ? this.#inherited(raw, key) : value;
  }

  #symbol(raw, key) {
    if (key === Symbol.iterator && isArray(raw) && this.run.transaction === undefined) return iterator;
    return raw[key];
  }

  #inherited(raw, key) {
    if (key === "toJSON") return giving ? give : copy;
    if (isArray(raw)) {
      if (hasOwn(readers, key)) return readers[key];
      if (hasOwn(writers, key)) return writers[key];
      return Array.prototype[key];
    }
    return Object.prototype[key];
  }

  has(raw, key) {
    if (typeof key === "symbol" || this.current) return key in raw;
    return this.cell.at(raw, key, this.run.version) !== ABSENT || key in Object.getPrototypeOf(raw);
  }

  ownKeys(raw) {
    return this.current ? Reflect.ownKeys(raw) : this.cell.keysAt(raw, this.run.version);
  }

  getOwnPropertyDescriptor(raw, key) {
    const value = typeof key === "symbol" ? ABSENT : this.member(key);
    if (value === ABSENT) return undefined;
    const isLength = isArray(raw) && key === "length";
    return { __proto__: null, value, writable: true, enumerable: !isLength, configurable: !isLength };
  }

  set(raw, key, value, receiver) {
    // An object that inherits from a view gets a member of its own.
    if (receiver !== this.proxy) return Reflect.defineProperty(receiver, key, /** @type {PropertyDescriptor} */ ({ __proto__: null, value, ...ORDINARY }));
    this.#writable().set(this, key, value);
    return true;
  }

  deleteProperty(raw, key) {
    this.#writable().delete(this, key);
    return true;
  }

  defineProperty(raw, key, descriptor) {
    const { value, writable = false, enumerable = false, configurable = false } = descriptor;
    if (!hasOwn(descriptor, "value") || !(writable && enumerable && configurable)) {
      throw new StateError(`\`${this.name()}\` holds plain members only, no getters or hidden ones (S rule 8)`);
    }
    this.#writable().set(this, key, value);
    return true;
  }

  setPrototypeOf() {
    throw new StateError(`\`${this.name()}\` can't have another prototype (S rule 8)`);
  }

  preventExtensions() {
    throw new StateError(`\`${this.name()}\` can't be frozen or sealed (S rule 8)`);
  }

  #writable() {
    return this.run.transaction ?? writable(this.run, this.name());
  }
}

/** A value without views. */
export function free(value) {
  return typeof value === "object" && value !== null ? (value[NODE]?.copy() ?? value) : value;
}

/** The key as a path has it: a number in an array. */
export function keyIn(raw, key) {
  return isArray(raw) && key !== "length" ? Number(key) : key;
}

/**
 * `toJSON` while the worker makes an answer.
 * @this {any}
 */
function give() {
  const node = this[NODE];
  return node.current ? node.raw : node.copy();
}

/** @this {any} */
function copy() {
  return this[NODE].copy();
}

/** @this {any} */
function iterator() {
  return this[NODE].elements()[Symbol.iterator]();
}

/**
 * Methods that go through a whole array do so on one copy of it, and not through the proxy, which would cost ten times
 * as much. Those that call the handler back do so for readers only: a writer may change the array in between.
 */
const readers = Object.create(null);
const LOOKING = "at concat flat includes indexOf join lastIndexOf slice toReversed toSpliced with";
const CALLING =
  "entries every filter find findIndex findLast findLastIndex flatMap forEach map reduce reduceRight some toSorted " +
  "values";
for (const name of LOOKING.split(" ")) readers[name] = throughCopy(Array.prototype[name], () => true);
for (const name of CALLING.split(" ")) {
  readers[name] = throughCopy(Array.prototype[name], (node) => node.run.transaction === undefined);
}

function throughCopy(method, may) {
  const { name } = method;
  return {
    /** @this {any} */
    [name](...all) {
      const node = this?.[NODE];
      return Reflect.apply(method, node !== undefined && may(node) ? node.elements() : this, all);
    },
  }[name];
}

/** Methods that change an array. */
const writers = Object.create(null);
for (const name of ["push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "copyWithin"]) {
  const method = Array.prototype[name];
  writers[name] = {
    /** @this {any} */
    [name](...all) {
      const node = this?.[NODE];
      if (node === undefined) return Reflect.apply(method, this, all);
      return writable(node.run, node.name()).rearrange(node, name, all);
    },
  }[name];
}
