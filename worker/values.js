// What may be kept in state and captured by a snapshot: JSON values, each in one place of one tree.
//
// They are copied in, so that nothing outside of the tree can change it, and what is read back is what the gateway
// and every other worker has: no -0, no half surrogate pairs, no holes.

/** @typedef {null | boolean | number | string | any[] | { [key: string]: any }} Json any: it is JSON again */

const { isArray } = Array;
const { getPrototypeOf, keys, freeze } = Object;
const ObjectPrototype = Object.prototype;
const { stringify } = JSON;

/** How deep a tree may be; parsers of JSON on the way refuse at 128. */
const DEEPEST = 100;

/** By this symbol a view of state answers who it is; nothing else has it. */
export const NODE = Symbol("view of state");

/** State, or a snapshot, was given what it can't hold, or was written through a view that is no longer in the tree. */
export class StateError extends Error {}
Object.defineProperty(StateError.prototype, "name", { value: "StateError", configurable: true, writable: true });

/**
 * A copy that may be kept.
 * @param {unknown} value
 * @param {() => string} name how the place is called, for the error
 * @param {number} depth of the place
 * @returns {Json}
 */
export function kept(value, name, depth = 0) {
  switch (typeof value) {
    case "string":
      return value.toWellFormed();
    case "number":
      if (!Number.isFinite(value)) throw refusal(name(), `the number ${value}`);
      return value + 0;
    case "boolean":
      return value;
    case "object":
      return value === null ? null : tree(value, name, depth, []);
    default:
      throw refusal(name(), kindOf(value));
  }
}

function tree(value, name, depth, above) {
  const node = value[NODE];
  if (node !== undefined) return node.copy();
  if (above.includes(value)) throw refusal(name(), "a circle (it contains itself)");
  if (depth + above.length >= DEEPEST) throw refusal(name(), `more than ${DEEPEST} levels`);
  above.push(value);
  const copy = isArray(value) ? array(value, name, depth, above) : object(value, name, depth, above);
  above.pop();
  return copy;
}

function array(value, name, depth, above) {
  const copy = [];
  for (let i = 0; i < value.length; i++) {
    const inner = value[i];
    copy.push(simple(inner) ? inner : member(inner, () => `${name()}[${i}]`, depth, above));
  }
  return copy;
}

function object(value, name, depth, above) {
  const prototype = getPrototypeOf(value);
  // A plain object may come from a package that runs in another realm; its prototype is then at the end as well.
  if (prototype !== ObjectPrototype && prototype !== null && getPrototypeOf(prototype) !== null) {
    throw refusal(name(), kindOf(value));
  }
  const copy = {};
  for (const key of keys(value)) {
    const inner = value[key];
    copy[keptKey(key, name)] = simple(inner) ? inner : member(inner, () => `${name()}${step(key)}`, depth, above);
  }
  return copy;
}

/** What most members are, and what needs no look. */
function simple(value) {
  return value === null || typeof value === "boolean" || (typeof value === "number" && value > 0 && value < Infinity);
}

function member(value, name, depth, above) {
  if (typeof value === "object" && value !== null) return tree(value, name, depth, above);
  return kept(value, name);
}

/** A key that may be kept. `__proto__` would change what the object is. */
export function keptKey(key, name) {
  if (key === "__proto__") throw refusal(name(), "a member that is called `__proto__`");
  return key.toWellFormed();
}

/** A copy of a tree of JSON values. */
export function copied(value) {
  if (typeof value !== "object" || value === null) return value;
  if (isArray(value)) return value.map(copied);
  const copy = {};
  for (const key of keys(value)) copy[key] = copied(value[key]);
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

function refusal(name, what) {
  const values = "null, booleans, finite numbers, strings, arrays without holes and plain objects";
  return new StateError(`\`${name}\` can't be ${what}: what lasts is ${values} (S rule 8)`);
}

function kindOf(value) {
  if (value === undefined) return "undefined";
  if (typeof value === "bigint") return "a BigInt";
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = value.constructor?.name;
  const isNamed = typeof name === "string" && name !== "" && name !== "Object";
  return isNamed ? `an instance of ${name}` : "an object that is not plain";
}
