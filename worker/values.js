// Values that can be stored in state and captured by a snapshot: JSON values, each at one position of one
// tree.
//
// Objects that a handler assigns remain its own until it ends (transaction.js), and are then copied, so that
// nothing outside the tree can change it, and reads return the same as in the gateway and in every other
// worker: without -0, unpaired surrogates, or holes.

/** @typedef {null | boolean | number | string | any[] | { [key: string]: any }} Json members are JSON again */

const { isArray } = Array;
const { getPrototypeOf, keys, freeze } = Object;
const ObjectPrototype = Object.prototype;
const { stringify } = JSON;

/** The maximum nesting of a tree; JSON parsers in the pipeline refuse more than 128 levels. */
const DEEPEST = 100;

/** The key under which a view of state returns its node; no other object has it. */
export const NODE = Symbol("view of state");

/** A value can't be stored in state or in a snapshot. */
export class StateError extends Error {}
Object.defineProperty(StateError.prototype, "name", { value: "StateError", configurable: true, writable: true });

/**
 * Returns a copy that can be stored.
 * @param {unknown} value
 * @param {() => string} name of the position, for errors
 * @returns {Json}
 */
export function kept(value, name) {
  return new TreeCopy(undefined).value(value, name, 0);
}

/** Returns the storable form of a value that is not an object. */
export function scalar(value, name) {
  switch (typeof value) {
    case "string":
      return value.toWellFormed();
    case "number":
      if (!Number.isFinite(value)) throw refusal(name(), `the number ${value}`);
      return value + 0;
    case "boolean":
      return value;
    default:
      if (value === null) return null;
      throw refusal(name(), kindOf(value));
  }
}

/**
 * Checks that a value can be stored in its current form.
 * @param {object} value
 * @param {() => string} name
 * @param {number} depth of the position
 */
export function check(value, name, depth) {
  new TreeCheck(undefined).value(value, name, depth);
}

/** Walks a value that a handler created, and refuses values that are not trees of JSON. */
class TreeWalk {
  /** The ancestors of the current object. @type {object[]} */
  #above = [];

  /** @param {Set<object> | undefined} assigned the handler's objects in raw trees */
  constructor(assigned) {
    this.assigned = assigned;
  }

  value(value, name, depth) {
    return typeof value === "object" && value !== null ? this.#tree(value, name, depth) : scalar(value, name);
  }

  /** Processes a member of a raw tree. */
  raw(value, name, depth) {
    if (typeof value !== "object" || value === null) return value;
    if (this.assigned === undefined) return copied(value);
    return this.assigned.has(value) ? this.#tree(value, name, depth) : this.#within(value, name, depth, this.#raw);
  }

  /** Processes a view inside the walked value. */
  view(node, _name, _depth) {
    return node.copy();
  }

  /** The result for an array or object; TreeCopy returns copies. @returns {any} */
  array(_value) {}
  /** @returns {any} */
  object(_value) {}
  moved(_raw) {}

  #tree(value, name, depth) {
    const node = value[NODE];
    if (node !== undefined) return this.view(node, name, depth);
    return this.#within(value, name, depth, this.#assigned);
  }

  #within(value, name, depth, walk) {
    const above = this.#above;
    if (above.includes(value)) throw refusal(name(), "a circle (it contains itself)");
    if (depth + above.length >= DEEPEST) throw refusal(name(), `more than ${DEEPEST} levels`);
    above.push(value);
    const copy = Reflect.apply(walk, this, [value, name, depth]);
    above.pop();
    return copy;
  }

  #assigned(value, name, depth) {
    if (!isArray(value)) return this.#object(value, name, depth);
    const copy = this.array(value);
    for (let i = 0; i < value.length; i++) {
      const inner = value[i];
      const next = simple(inner) ? inner : this.value(inner, () => `${name()}[${i}]`, depth);
      copy?.push(next);
    }
    // The keys of an array are its indices, followed by any others. Holes were refused above.
    const members = keys(value);
    if (members.length > value.length) throw namedElement(name(), members[value.length]);
    return copy;
  }

  #object(value, name, depth) {
    const prototype = getPrototypeOf(value);
    // A plain object may come from a package in another realm; its prototype is then also the end of the
    // chain.
    if (prototype !== ObjectPrototype && prototype !== null && getPrototypeOf(prototype) !== null) {
      throw refusal(name(), kindOf(value));
    }
    const copy = this.object(value);
    const members = keys(value);
    let isRenamed = false;
    for (const key of members) {
      const inner = value[key];
      const place = keptKey(key, name);
      isRenamed ||= place !== key;
      const next = simple(inner) ? inner : this.value(inner, () => `${name()}${step(key)}`, depth);
      if (copy !== undefined) copy[place] = next;
    }
    if (isRenamed && copy !== undefined && keys(copy).length < members.length) throw sameKey(name());
    return copy;
  }

  #raw(value, name, depth) {
    this.moved(value);
    if (isArray(value)) return value.map((inner, i) => this.raw(inner, () => `${name()}[${i}]`, depth));
    const copy = {};
    for (const key of keys(value)) {
      const inner = value[key];
      if (inner !== undefined) copy[key] = this.raw(inner, () => `${name()}${step(key)}`, depth);
    }
    return copy;
  }
}

/** Only validates. Views inside the value are resolved when they are copied. */
class TreeCheck extends TreeWalk {
  view() {}
}

/** Copies values that handlers assigned, and parts of raw trees. */
export class TreeCopy extends TreeWalk {
  /** The copied objects of the handler. @type {Set<object>} */
  made = new Set();
  /** The copied objects of raw trees, if anything was assigned. @type {Set<object>} */
  raws = new Set();

  view(node, name, depth) {
    const isOwn = this.assigned !== undefined && node.writer?.assigned === this.assigned;
    return isOwn ? this.raw(node.raw, name, depth) : node.copy();
  }

  array(value) {
    this.made.add(value);
    return /** @type {any[]} */ ([]);
  }

  object(value) {
    this.made.add(value);
    return {};
  }

  moved(raw) {
    this.raws.add(raw);
  }
}

/** Whether a value can be stored without a check; true for most members. */
function simple(value) {
  return value === null || typeof value === "boolean" || (typeof value === "number" && value > 0 && value < Infinity);
}

/** Returns a key that can be stored. `__proto__` would change the object's prototype. */
export function keptKey(key, name) {
  if (key === "__proto__") throw refusal(name(), "a member named `__proto__`");
  return key.toWellFormed();
}

/** Returns a copy of a raw tree in which nothing was assigned. */
export function copied(value) {
  if (typeof value !== "object" || value === null) return value;
  if (isArray(value)) return value.map(copied);
  const copy = {};
  for (const key of keys(value)) {
    const inner = value[key];
    if (inner !== undefined) copy[key] = copied(inner);
  }
  return copy;
}

/** Makes a tree of JSON values immutable. */
export function frozen(value) {
  if (typeof value !== "object" || value === null) return value;
  for (const key of keys(value)) frozen(value[key]);
  return freeze(value);
}

/** Returns the notation of a member access, for names in errors. */
export function step(key) {
  if (typeof key === "number") return `[${key}]`;
  return /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key) ? `.${key}` : `[${stringify(key)}]`;
}

/** Returns the error for a value that can't be stored. */
export function refusal(name, what) {
  const values = "null, booleans, finite numbers, strings, arrays without holes and plain objects";
  return new StateError(`\`${name}\` can't be ${what}: state consists of ${values} (S rule 8)`);
}

/** Returns the error for an object with keys that differ in unpaired surrogates only. */
function sameKey(name) {
  return new StateError(`\`${name}\` has two members of one name: unpaired surrogates become U+FFFD (S rule 8)`);
}

/** Returns the error for an array with a named member. */
export function namedElement(name, key) {
  return new StateError(`\`${name}\` can't have \`${key}\`: an array has elements only (S rule 8)`);
}

function kindOf(value) {
  if (value === undefined) return "undefined";
  if (typeof value === "bigint") return "a BigInt";
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = value.constructor?.name;
  const isNamed = typeof name === "string" && name !== "" && name !== "Object";
  return isNamed ? `an instance of ${name}` : "an object that is not plain";
}
