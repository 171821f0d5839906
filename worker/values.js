// What may be kept in state and captured by a snapshot: JSON values, each in one place of one tree.
//
// What a handler assigns stays its own object until the handler ends (transaction.js), and is then copied, so that nothing
// outside of the tree can change it, and what is read back is what the gateway and every other worker has: no -0, no half
// surrogate pairs, no holes.

/** @typedef {null | boolean | number | string | any[] | { [key: string]: any }} Json any: it is JSON again */

const { isArray } = Array;
const { getPrototypeOf, keys, freeze } = Object;
const ObjectPrototype = Object.prototype;
const { stringify } = JSON;

/** How deep a tree may be; parsers of JSON on the way refuse at 128. */
const DEEPEST = 100;

/** By this symbol a view of state answers who it is; nothing else has it. */
export const NODE = Symbol("view of state");

/** State, or a snapshot, was given what it can't hold. */
export class StateError extends Error {}
Object.defineProperty(StateError.prototype, "name", { value: "StateError", configurable: true, writable: true });

/**
 * A copy that may be kept.
 * @param {unknown} value
 * @param {() => string} name how the place is called, for the error
 * @returns {Json}
 */
export function kept(value, name) {
  return new TreeCopy(undefined).value(value, name, 0);
}

/** The same of what is no object. */
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
 * Checks that a value can be kept, as far as can be seen now.
 * @param {object} value
 * @param {() => string} name
 * @param {number} depth of the place
 */
export function check(value, name, depth) {
  new TreeCheck(undefined).value(value, name, depth);
}

/** Goes through what a handler made, and refuses what is no tree of JSON values. */
class TreeWalk {
  /** Objects that the present one is in. @type {object[]} */
  #above = [];

  /** @param {Set<object> | undefined} assigned objects of the handler's that stand in raw trees */
  constructor(assigned) {
    this.assigned = assigned;
  }

  value(value, name, depth) {
    return typeof value === "object" && value !== null ? this.#tree(value, name, depth) : scalar(value, name);
  }

  /** A member of a raw tree. */
  raw(value, name, depth) {
    if (typeof value !== "object" || value === null) return value;
    if (this.assigned === undefined) return copied(value);
    return this.assigned.has(value) ? this.#tree(value, name, depth) : this.#within(value, name, depth, this.#raw);
  }

  /** A view that is part of what is walked. */
  view(node, _name, _depth) {
    return node.copy();
  }

  /** What is made of arrays and objects; TreeCopy makes copies. @returns {any} */
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
    // Its keys are its indices, followed by any others. A hole was refused above.
    const members = keys(value);
    if (members.length > value.length) throw namedElement(name(), members[value.length]);
    return copy;
  }

  #object(value, name, depth) {
    const prototype = getPrototypeOf(value);
    // A plain object may come from a package that runs in another realm; its prototype is then at the end as well.
    if (prototype !== ObjectPrototype && prototype !== null && getPrototypeOf(prototype) !== null) {
      throw refusal(name(), kindOf(value));
    }
    const copy = this.object(value);
    for (const key of keys(value)) {
      const inner = value[key];
      const place = keptKey(key, name);
      const next = simple(inner) ? inner : this.value(inner, () => `${name()}${step(key)}`, depth);
      if (copy !== undefined) copy[place] = next;
    }
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

/** Looks only. What becomes of views that are in it is seen when they are copied. */
class TreeCheck extends TreeWalk {
  view() {}
}

/** Makes trees of what handlers assigned, and of what stands in raw trees. */
export class TreeCopy extends TreeWalk {
  /** The handler's objects that were copied. @type {Set<object>} */
  made = new Set();
  /** Those of the raw trees, if anything was assigned. @type {Set<object>} */
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

/** What most members are, and what needs no look. */
function simple(value) {
  return value === null || typeof value === "boolean" || (typeof value === "number" && value > 0 && value < Infinity);
}

/** A key that may be kept. `__proto__` would change what the object is. */
export function keptKey(key, name) {
  if (key === "__proto__") throw refusal(name(), "a member that is called `__proto__`");
  return key.toWellFormed();
}

/** A copy of a raw tree in which nothing was assigned. */
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

/** A tree of JSON values that can't be changed any more. */
export function frozen(value) {
  if (typeof value !== "object" || value === null) return value;
  for (const key of keys(value)) frozen(value[key]);
  return freeze(value);
}

/** How a member is written behind the name of what it is in. */
export function step(key) {
  if (typeof key === "number") return `[${key}]`;
  return /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(key) ? `.${key}` : `[${stringify(key)}]`;
}

/** A value that can't be kept. */
export function refusal(name, what) {
  const values = "null, booleans, finite numbers, strings, arrays without holes and plain objects";
  return new StateError(`\`${name}\` can't be ${what}: what lasts is ${values} (S rule 8)`);
}

/** An array with a member that is not an element. */
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
