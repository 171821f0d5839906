// Makes the built-in objects immutable that names lead to from any object, array, function or primitive
// value: names may come from a request, as in `((tree[query.a] ??= {})[query.b] ??= {})[query.c] = 1`, and all
// handlers of the worker share these objects.
//
// `Object` and its prototype are locked at once, the others once a program is loaded, since packages add
// polyfills. All other built-in objects remain mutable.
//
// Assigning an inherited read-only member fails, which would break programs that give their objects members
// of such names. The members of the prototypes of objects, arrays and functions are therefore accessors, which
// define an own member on the inheriting object.
//
// Engines handle arrays more slowly if a prototype of arrays is frozen or has read-only methods, or if its
// `constructor` was redefined, but not with accessors. This `constructor` remains writable, and so does `length`,
// which subclasses in the style of ES5 assign on their instances. Both are checked instead. Regular expressions,
// which data cannot refer to, are omitted: any change of their prototype makes them slow.

const { defineProperty, freeze, getOwnPropertyDescriptors, getPrototypeOf, hasOwn, preventExtensions } = Object;
const { isArray } = Array;
const ObjectPrototype = Object.prototype;
const ArrayPrototype = Array.prototype;
const FunctionPrototype = Function.prototype;

const LITERALS = [{}, [], "", 0, true, 0n, Symbol(), () => {}, async () => {}, function* () {}, async function* () {}];
/** The prototypes of literals, and their constructors. @type {any[]} */
const SHARED = LITERALS.map((literal) => getPrototypeOf(Object(literal))).flatMap((it) => [it, it.constructor]);

let isLocked = false;

/** Locks `Object` and its prototype. Packages can still redefine the functions of `Object`. */
export function lockObject() {
  for (const { value, writable } of Object.values(getOwnPropertyDescriptors(ObjectPrototype))) {
    if (writable && value !== Object) freeze(value);
  }
  lockMembers(ObjectPrototype);
  preventExtensions(ObjectPrototype);
  for (const [name, { value, writable }] of Object.entries(getOwnPropertyDescriptors(Object))) {
    if (typeof value !== "function" || !writable) continue;
    freeze(value);
    defineProperty(Object, name, { value, writable: false });
  }
}

/** Locks all shared objects. */
export function lockShared() {
  if (isLocked) return;
  isLocked = true;
  if (hasOwn(ObjectPrototype, "__proto__")) {
    defineProperty(ObjectPrototype, "__proto__", { set: setPrototype, configurable: false });
  }
  const members = SHARED.flatMap((holder) => Object.values(getOwnPropertyDescriptors(holder)));
  lockMembers(FunctionPrototype);
  lockMembers(ArrayPrototype, "constructor");
  preventExtensions(ArrayPrototype);
  for (const holder of SHARED) if (holder !== ObjectPrototype && holder !== ArrayPrototype) freeze(holder);
  for (const { value, get, set } of members) {
    for (const member of [value, get, set]) if (typeof member === "function") freeze(member);
  }
}

/** Restores the two shared members that are writable, and throws if one of them was changed. */
export function checkShared() {
  const isOriginal = ArrayPrototype.constructor === Array;
  if (isOriginal && ArrayPrototype.length === 0) return;
  ArrayPrototype.length = 0;
  if (isOriginal) throw unchangeable(ArrayPrototype, "length");
  if (!isDamaged()) defineProperty(ArrayPrototype, "constructor", { value: Array, writable: true });
  throw unchangeable(ArrayPrototype, "constructor");
}

/** Whether a shared member was deleted. It can't be restored, since its object is not extensible. */
export function isDamaged() {
  return !hasOwn(ArrayPrototype, "constructor");
}

/** Replaces the writable members of a prototype by accessors, except for one. */
function lockMembers(prototype, except = "") {
  for (const [name, { value, writable, configurable }] of Object.entries(getOwnPropertyDescriptors(prototype))) {
    if (writable && configurable && name !== except) defineProperty(prototype, name, accessor(prototype, name, value));
  }
}

function accessor(holder, name, value) {
  return {
    get: () => value,
    /** @this {any} */
    set(next) {
      if (this === holder) throw unchangeable(holder, name);
      if (hasOwn(this, name)) this[name] = next;
      else addMember(this, name, next);
    },
    enumerable: false,
    configurable: false,
  };
}

/**
 * The setter of `__proto__`. Data that is assigned to a member of data is kept as one, as in Deno, instead of
 * being ignored or becoming a prototype.
 * @this {any}
 */
function setPrototype(next) {
  if (this === ObjectPrototype) throw unchangeable(ObjectPrototype, "__proto__");
  if (typeof this === "object" && isData(this) && isData(next)) addMember(this, "__proto__", next);
  else if (!Reflect.setPrototypeOf(this, next)) throw new TypeError("the prototype of this object can't be changed");
}

/** Whether a value can come from JSON: it is no function and no instance or prototype of a class. */
function isData(value) {
  if (typeof value !== "object" || value === null) return typeof value !== "function";
  if (isArray(value)) return true;
  const prototype = getPrototypeOf(value);
  const isPlain = prototype === ObjectPrototype || prototype === null;
  return isPlain && !(hasOwn(value, "constructor") && typeof value.constructor === "function");
}

function addMember(object, name, value) {
  defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
}

function unchangeable(prototype, name) {
  const type = SHARED[SHARED.indexOf(prototype) + 1].name;
  return new TypeError(`\`${name}\` of ${type}.prototype can't be changed: all handlers share it (S rule 21)`);
}
