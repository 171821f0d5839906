// Makes `Object.prototype` and `Object`, which are reachable from every object, immutable: member names may
// come from a request, as in `((tree[query.a] ??= {})[query.b] ??= {})[query.c] = 1`, and all handlers of the
// worker share these objects.
//
// Freezing `Object.prototype` would break packages, since an assignment to an inherited read-only member
// fails. Its members are therefore accessors that define an own member on the inheriting object.
// `constructor` remains unchanged, since engines use it to determine class names. Other intrinsics remain
// mutable as well, since packages add polyfills.

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
    // Packages can still redefine it.
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
