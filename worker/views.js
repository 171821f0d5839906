// What a handler sees of its cells: an object with a member for each, and behind it a proxy for every object and array
// that it looks at. The proxies read the raw tree, or around what was written since the run's version (state.js).
//
// A run that writes has a transaction; its version is then Infinity, so that it reads the newest. Once it has committed
// it is a reader of what it has made. What it assigns is seen as the object that it is, and what it moves, or takes out, by
// the view that it had: references are those of plain objects.

import { randomUUID } from "node:crypto";

import { ABSENT, VALUE } from "./state.js";
import { NODE, StateError, TreeCopy, copied, step } from "./values.js";

const { hasOwn, defineProperty, freeze } = Object;
const { isArray, prototype: ArrayPrototype } = Array;

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
            (this.#run.transaction ?? refuse(this.#run, name)).setCell(slot, value);
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
  if (value === ABSENT) return undefined;
  if (typeof value !== "object" || value === null || run.transaction?.assigned?.has(value)) return value;
  return nodeOf(run, cell, value, undefined, slot).proxy;
}

/** Says why a run may not write. @returns {never} */
function refuse(run, name) {
  throw new TypeError(`state \`${name}\` can't be changed: ${run.whyReadOnly()}`);
}

/**
 * A run has one view of each object, so that it is equal to itself, wherever the object is moved. It begins where the
 * object stood before: nothing gets anywhere else but by its view.
 */
function nodeOf(run, cell, raw, parent, key) {
  const nodes = (run.nodes ??= new Map());
  let node = nodes.get(raw);
  if (node === undefined) {
    node = new Node(run, cell, raw, parent, parent === undefined ? key : keyIn(parent.raw, key));
    nodes.set(raw, node);
  }
  return node;
}

/** A view, and the handler of its proxy. */
export class Node {
  /** Of what the run has taken out of the state before it committed: it is the run's own. @type {Transaction | undefined} */
  scratch;

  /**
   * @param {Node | undefined} parent where it stood first; none where it was the cell's value
   * @param {string | number} key its place there; the slot where it was the cell's value
   */
  constructor(run, cell, raw, parent, key) {
    this.run = run;
    this.cell = cell;
    this.raw = raw;
    this.parent = parent;
    this.key = key;
    if (parent !== undefined) this.scratch = parent.scratch;
    this.proxy = new Proxy(raw, /** @type {ProxyHandler<any>} */ (/** @type {unknown} */ (this)));
  }

  /** What its changes go to; none of a run that only reads. */
  get writer() {
    return this.scratch ?? this.run.transaction;
  }

  /** Whether nothing was written since the run's version. */
  get current() {
    return this.cell.version <= this.run.version;
  }

  /** A member as a handler sees it. */
  member(key) {
    const { raw, cell, run } = this;
    return this.seen(cell.version <= run.version ? cell.now(raw, key) : cell.at(raw, key, run.version), key);
  }

  /** What a handler sees of a member: of what it has assigned itself that, and of other objects a view. */
  seen(value, key) {
    if (typeof value !== "object" || value === null || this.writer?.assigned?.has(value)) return value;
    return nodeOf(this.run, this.cell, value, this, key).proxy;
  }

  get length() {
    return this.current ? this.raw.length : this.cell.at(this.raw, "length", this.run.version);
  }

  /** The elements of an array, as a handler sees them, in an array of their own. */
  elements() {
    if (this.current) {
      return this.raw.map((value, i) => (typeof value === "object" && value !== null ? this.seen(value, i) : value));
    }
    return Array.from({ length: this.length }, (_, i) => this.member(String(i)));
  }

  /** A copy that belongs to the handler. */
  copy() {
    const assigned = this.writer?.assigned;
    if (assigned !== undefined) return new TreeCopy(assigned).raw(this.raw, () => this.name(), 0);
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
    for (; node.parent !== undefined; node = node.parent) name = step(node.key) + name;
    return this.run.names[/** @type {number} */ (node.key)] + name;
  }

  get(_, key) {
    const { raw, cell, run } = this;
    if (typeof key === "symbol") return key === NODE ? this : this.#symbol(raw, key);
    const isCurrent = cell.version <= run.version;
    const value = isCurrent ? raw[key] : cell.at(raw, key, run.version);
    if (typeof value === "object" && value !== null) {
      return !isCurrent || hasOwn(raw, key) ? this.seen(value, key) : inherited(raw, key);
    }
    // What a prototype has is a function or an object, unless somebody has put something else there.
    return value === undefined || value === ABSENT || typeof value === "function" ? inherited(raw, key) : value;
  }

  #symbol(raw, key) {
    if (!isArray(raw)) return key === Symbol.toPrimitive ? primitive : raw[key];
    if (key === Symbol.iterator && this.run.transaction === undefined) return iterator;
    return raw[key];
  }

  has(_, key) {
    const { raw, cell, run } = this;
    if (typeof key === "symbol") return key in raw;
    const value = cell.version <= run.version ? cell.now(raw, key) : cell.at(raw, key, run.version);
    return value !== ABSENT || (isArray(raw) && methodOf(key) !== undefined);
  }

  ownKeys() {
    return this.current ? this.cell.keys(this.raw) : this.cell.keysAt(this.raw, this.run.version);
  }

  getOwnPropertyDescriptor(_, key) {
    const value = typeof key === "symbol" ? ABSENT : this.member(key);
    if (value === ABSENT) return undefined;
    const isLength = isArray(this.raw) && key === "length";
    return { __proto__: null, value, writable: true, enumerable: !isLength, configurable: !isLength };
  }

  set(_, key, value, receiver) {
    // An object that inherits from a view gets a member of its own.
    if (receiver !== this.proxy) return Reflect.defineProperty(receiver, key, /** @type {PropertyDescriptor} */ ({ __proto__: null, value, ...ORDINARY }));
    this.#writable().set(this, key, value);
    return true;
  }

  deleteProperty(_, key) {
    this.#writable().delete(this, key);
    return true;
  }

  defineProperty(_, key, descriptor) {
    // What is not said of a member that is there stays as it is.
    const isThere = typeof key === "string" && this.member(key) !== ABSENT;
    const { value, writable = isThere, enumerable = isThere, configurable = isThere } = descriptor;
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
    return this.writer ?? refuse(this.run, this.name());
  }
}

/** @typedef {import("./transaction.js").Transaction} Transaction */

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

/**
 * What a view has beside its members: nothing in objects, and methods in arrays. The names may be a client's, so that nothing
 * of `Object.prototype` is handed out, and no function that other code uses.
 */
function inherited(raw, key) {
  // Only while the worker makes an answer: a client may name a member.
  if (key === "toJSON" && giving) return give;
  return isArray(raw) ? methodOf(key) : undefined;
}

/** What `String(view)` of an object is, without a `toString` that a client could name. */
const primitive = freeze(() => "[object Object]");

/** @this {any} */
function iterator() {
  return this[NODE].elements()[Symbol.iterator]();
}

/** The methods of arrays, by name. Handlers share them, and can't change them. */
const methods = Object.create(null);

/** A method of arrays, which may be one that a package has added. */
function methodOf(key) {
  const method = methods[key];
  if (method !== undefined || key === "constructor" || !hasOwn(ArrayPrototype, key)) return method;
  return typeof ArrayPrototype[key] === "function" ? (methods[key] = throughProxy(key)) : undefined;
}

function throughProxy(name) {
  return freeze(
    {
      /** @this {any} */
      [name](...all) {
        return Reflect.apply(ArrayPrototype[name], this, all);
      },
    }[name],
  );
}

/**
 * Methods that go through a whole array do so on one copy of it, and not through the proxy, which would cost ten times
 * as much. Those that call the handler back do so for readers only: a writer may change the array in between.
 */
const LOOKING = "at concat flat includes indexOf join lastIndexOf slice toReversed toSpliced with";
const CALLING =
  "entries every filter find findIndex findLast findLastIndex flatMap forEach keys map reduce reduceRight some " +
  "toSorted values";
for (const name of LOOKING.split(" ")) methods[name] = throughCopy(ArrayPrototype[name], () => true);
for (const name of CALLING.split(" ")) {
  methods[name] = throughCopy(ArrayPrototype[name], (node) => node.run.transaction === undefined);
}

function throughCopy(method, may) {
  const { name } = method;
  return freeze(
    {
      /** @this {any} */
      [name](...all) {
        const node = this?.[NODE];
        return Reflect.apply(method, node !== undefined && may(node) ? node.elements() : this, all);
      },
    }[name],
  );
}

/** Methods that change an array. */
for (const name of ["push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "copyWithin"]) {
  const method = ArrayPrototype[name];
  methods[name] = freeze(
    {
      /** @this {any} */
      [name](...all) {
        const node = this?.[NODE];
        if (node === undefined) return Reflect.apply(method, this, all);
        return (node.writer ?? refuse(node.run, node.name())).rearrange(node, name, all);
      },
    }[name],
  );
}
