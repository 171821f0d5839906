// The handlers' view of their cells: an object with a member for each cell, and a proxy for every object and
// array that a handler accesses in it. The proxies read the raw tree, or the values that it had at the run's
// version (state.js).
//
// A run that writes has a transaction; its version is then Infinity, so that it reads the newest values.
// After its commit it is a reader of its own result. Assigned objects are returned as the same objects, and
// moved or removed objects as their existing views: references behave like those of plain objects.

import { randomUUID } from "node:crypto";

import { ABSENT, VALUE } from "./state.js";
import { NODE, StateError, TreeCopy, copied, step } from "./values.js";

const { hasOwn, defineProperty, freeze } = Object;
const { isArray, prototype: ArrayPrototype } = Array;

/** The attributes of an assigned member. */
const ORDINARY = { writable: true, enumerable: true, configurable: true };

/** Set while the worker serialises a response: views then return their raw trees. */
let giving = false;

/**
 * A placeholder for JSON that is inserted into a response unchanged. Data cannot contain it: it is random and
 * never leaves the worker.
 */
const MARK = randomUUID();
const QUOTED = JSON.stringify(MARK);
/** The texts for the placeholders, in order. @type {string[]} */
let texts = [];

/** JSON that no code reads, in its original form. */
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

/** Returns the JSON of a value that may contain views; avoids proxies where the raw tree is current. */
export function stringify(value) {
  if (value instanceof Error && Object.keys(value).length === 0 && !("toJSON" in value)) {
    throw new TypeError("an Error would be {}: send `error.message` instead (S rule 13)");
  }
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

const IteratorPrototype = Object.getPrototypeOf(Object.getPrototypeOf([].values()));
/** Built-in objects that JSON omits the content of, and expressions for it. */
const CONTENTS = /** @type {[string, any, string][]} */ ([
  ["a Map", Map.prototype, "Object.fromEntries(map)"],
  ["a Set", Set.prototype, "[...set]"],
  ["an iterator", IteratorPrototype, "[...iterator]"],
  ["a URLSearchParams", URLSearchParams.prototype, "String(parameters)"],
  ["a Promise", Promise.prototype, "await promise"],
  ["an ArrayBuffer", ArrayBuffer.prototype, "[...new Uint8Array(buffer)]"],
  ["a DataView", DataView.prototype, "[...new Uint8Array(view.buffer)]"],
  ["a Blob", Blob.prototype, "await blob.text()"],
]);
for (const [name, prototype, content] of CONTENTS) refuseJson(name, prototype, content);

/** The objects of Fetch without JSON, and expressions for their content. */
const FETCH = {
  Headers: "Object.fromEntries(headers)",
  Response: "await response.text()",
  FormData: "Object.fromEntries(form)",
};
for (const name of Object.keys(FETCH)) {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, name);
  if (descriptor?.get === undefined) {
    refuseFetched(name, globalThis[name]);
    continue;
  }
  // Node loads Fetch when one of them is used first: that takes 25 ms.
  const { get } = descriptor;
  /** @this {any} */
  descriptor.get = function () {
    const type = Reflect.apply(get, this, []);
    refuseFetched(name, type);
    return type;
  };
  defineProperty(globalThis, name, descriptor);
}

function refuseFetched(name, type) {
  if (type !== undefined) refuseJson(`a ${name}`, type.prototype, FETCH[name]);
}

/** Lets the conversion of an object to JSON fail while the worker serialises, unless the engine has one. */
function refuseJson(name, prototype, content) {
  // Those of Bun for Headers, FormData and URLSearchParams.
  if (Object.hasOwn(prototype, "toJSON")) return;
  /** @this {any} */
  const toJSON = function (key) {
    if (!giving) return this;
    throw new TypeError(`${name}${key === "" ? "" : ` at \`${key}\``} would be {}: send \`${content}\` instead (S rule 13)`);
  };
  // Takes effect only while the worker serialises; packages may replace it.
  defineProperty(prototype, "toJSON", { value: toJSON, writable: true, configurable: true });
}

function unmarked(text) {
  const parts = text.split(QUOTED);
  let whole = parts[0];
  for (let i = 0; i < texts.length; i++) whole += texts[i] + parts[i + 1];
  return whole;
}

/**
 * Returns the class of a handler's `$r.cells`.
 * @param {string[]} names of the cells, in the order of the RUN frame
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
          // @ts-expect-error: descriptors have no `__proto__` in their type
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

/**
 * Throws an error with the reason why a run may not write.
 * @returns {never}
 */
function refuse(run, name) {
  throw new TypeError(`state \`${name}\` can't be changed: ${run.whyReadOnly()}`);
}

/**
 * Returns the view of an object. A run has a single view of each object, so that it is equal to itself even
 * after a move. The view is created at the object's old position: an object can be moved only through its
 * view.
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
  /** For an object that left the state before the commit: its own transaction. @type {Transaction | undefined} */
  scratch;

  /**
   * @param {Node | undefined} parent its first parent; undefined for the cell's value
   * @param {string | number} key its key in this parent; the slot for the cell's value
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

  /** The transaction for changes; undefined for a read-only run. */
  get writer() {
    return this.scratch ?? this.run.transaction;
  }

  /** Whether nothing was written since the run's version. */
  get current() {
    return this.cell.version <= this.run.version;
  }

  /** Returns a member as the handler sees it. */
  member(key) {
    const { raw, cell, run } = this;
    const value = cell.version <= run.version ? cell.now(raw, key) : cell.at(raw, key, run.version);
    // Keys of state are well-formed.
    if (value === ABSENT && !key.isWellFormed()) return this.member(key.toWellFormed());
    return this.seen(value, key);
  }

  /** Returns a value as the handler sees it: an object that it has assigned itself, or a view of another object. */
  seen(value, key) {
    if (typeof value !== "object" || value === null || this.writer?.assigned?.has(value)) return value;
    return nodeOf(this.run, this.cell, value, this, key).proxy;
  }

  get length() {
    return this.current ? this.raw.length : this.cell.at(this.raw, "length", this.run.version);
  }

  /** Returns the elements of an array as the handler sees them, in a new array. */
  elements() {
    if (this.current) {
      return this.raw.map((value, i) => (typeof value === "object" && value !== null ? this.seen(value, i) : value));
    }
    return Array.from({ length: this.length }, (_, i) => this.member(String(i)));
  }

  /** Returns a copy that belongs to the handler. */
  copy() {
    const assigned = this.writer?.assigned;
    if (assigned !== undefined) return new TreeCopy(assigned).raw(this.raw, () => this.name(), 0);
    if (this.current) return copied(this.raw);
    if (isArray(this.raw)) return this.elements().map(free);
    const copy = {};
    for (const key of this.cell.keysAt(this.raw, this.run.version)) copy[key] = free(this.member(key));
    return copy;
  }

  /** Returns the name of the position, for errors. */
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
    // Members of a prototype are functions or objects, unless other code has added further ones.
    if (value !== undefined && value !== ABSENT && typeof value !== "function") return value;
    if (typeof value === "function" || key.isWellFormed()) return inherited(raw, key);
    return this.get(_, key.toWellFormed());
  }

  #symbol(raw, key) {
    if (!isArray(raw)) return key === Symbol.toPrimitive ? primitive : raw[key];
    if (key === Symbol.iterator && this.writer === undefined) return iterator;
    return raw[key];
  }

  has(_, key) {
    const { raw, cell, run } = this;
    if (typeof key === "symbol") return key in raw;
    const value = cell.version <= run.version ? cell.now(raw, key) : cell.at(raw, key, run.version);
    if (value === ABSENT && !key.isWellFormed()) return this.has(_, key.toWellFormed());
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
    // An object that inherits from a view gets an own member.
    if (receiver !== this.proxy) return Reflect.defineProperty(receiver, key, /** @type {PropertyDescriptor} */ ({ __proto__: null, value, ...ORDINARY }));
    this.#writable().set(this, key, value);
    return true;
  }

  deleteProperty(_, key) {
    this.#writable().delete(this, typeof key === "symbol" ? key : key.toWellFormed());
    return true;
  }

  defineProperty(_, key, descriptor) {
    // Attributes that are not specified keep their values if the member exists.
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

/** Returns a value without views. */
export function free(value) {
  return typeof value === "object" && value !== null ? (value[NODE]?.copy() ?? value) : value;
}

/** Returns the key in the form of a path: a number in an array. */
export function keyIn(raw, key) {
  return isArray(raw) && key !== "length" ? Number(key) : key;
}

/**
 * The `toJSON` of views while the worker serialises a response.
 * @this {any}
 */
function give() {
  const node = this[NODE];
  return node.current ? node.raw : node.copy();
}

/**
 * Returns the inherited members of a view: none for objects, and methods for arrays. Names may come from a
 * client, so nothing of `Object.prototype` is exposed, and no function that other code uses.
 */
function inherited(raw, key) {
  // Only during serialisation, since a client may name a member.
  if (key === "toJSON" && giving) return give;
  return isArray(raw) ? methodOf(key) : undefined;
}

/** The result of `String(view)` for an object, without a `toString` that a client could name. */
const primitive = freeze(() => "[object Object]");

/** @this {any} */
function iterator() {
  return this[NODE].elements()[Symbol.iterator]();
}

/** The methods of arrays, by name. Handlers share them, so they are immutable. */
const methods = Object.create(null);

/** Returns a method of arrays, including methods that a package has added. */
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
 * Methods that read a whole array use a copy instead of the proxy, which would cost ten times as much.
 * Methods with callbacks do so for readers only: a writer may change the array in its callback.
 */
const LOOKING = "at concat flat join slice toReversed toSpliced with";
const SEARCHING = "includes indexOf lastIndexOf";
const CALLING =
  "entries every filter find findIndex findLast findLastIndex flatMap forEach keys map reduce reduceRight some " +
  "toSorted values";
for (const name of LOOKING.split(" ")) methods[name] = throughCopy(ArrayPrototype[name], () => true);
for (const name of CALLING.split(" ")) {
  methods[name] = throughCopy(ArrayPrototype[name], (node) => node.writer === undefined);
}
// Strings of state are well-formed.
const wellFormed = (value) => (typeof value === "string" ? value.toWellFormed() : value);
for (const name of SEARCHING.split(" ")) {
  methods[name] = throughCopy(ArrayPrototype[name], () => true, ([value, ...rest]) => [wellFormed(value), ...rest]);
}

function throughCopy(method, may, taken = (all) => all) {
  const { name } = method;
  return freeze(
    {
      /** @this {any} */
      [name](...all) {
        const node = this?.[NODE];
        if (node === undefined || !may(node)) return Reflect.apply(method, this, all);
        return Reflect.apply(method, node.elements(), taken(all));
      },
    }[name],
  );
}

/** Methods that modify an array. */
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
