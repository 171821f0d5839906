// `Object.prototype` and `Object`, which every object leads to, can't be changed by a member that is set: a request may
// name it, as in `((tree[query.a] ??= {})[query.b] ??= {})[query.c] = 1`, and all handlers of the worker share them.
//
// Frozen they would break packages: what inherits from a frozen object can't be assigned a member of the same name. So
// members are accessors that give inheriting objects members of their own. `constructor` stays as it is, since engines
// look for the names of classes there. Other intrinsics stay as well: packages fill in what an engine lacks.

const { defineProperty, freeze, getOwnPropertyDescriptors, hasOwn, preventExtensions } = Object;

export function lockIntrinsics() {
  const { prototype } = Object;
  for (const [name, { value, writable }] of Object.entries(getOwnPropertyDescriptors(prototype))) {
    if (!writable || name === "constructor") continue;
    freeze(value);
    defineProperty(prototype, name, accessor(prototype, name, value));
  }
  preventExtensions(prototype);
  for (const [name, { value, writable }] of Object.entries(getOwnPropertyDescriptors(Object))) {
    if (typeof value !== "function" || !writable) continue;
    freeze(value);
    // A package that defines it anew still can.
    defineProperty(Object, name, { value, writable: false });
  }
}

function accessor(holder, name, value) {
  return {
    get: () => value,
    /** @this {any} */
    set(next) {
      if (this === holder) throw new TypeError(`\`${name}\` of Object.prototype can't be changed`);
      if (hasOwn(this, name)) this[name] = next;
      else defineProperty(this, name, { value: next, writable: true, enumerable: true, configurable: true });
    },
    enumerable: false,
    configurable: false,
  };
}
