// `par` and `pfor`: concurrent execution of several units of a handler, with the result of sequential
// execution.
//
// Both are equivalent to a sequential run (rules 18, 19): no unit starts after one has thrown or left
// (`return`, `break`, which are represented as a value), all started units are awaited, and then the first in
// program order decides.

/**
 * @template T
 * @typedef {(index: T) => Promise<unknown>} Unit
 */

/** The results of started units, and their completion. */
class Units {
  #running = 0;
  /** Whether a unit has thrown or left, so that no further unit starts. */
  stopped = false;
  #first = Infinity;
  /** @type {() => void} */
  #decide;

  constructor(resolve, reject) {
    this.resolve = resolve;
    this.reject = reject;
    this.#decide = () => resolve(undefined);
  }

  start(index, unit, argument, after) {
    this.#running++;
    let promise;
    try {
      promise = Promise.resolve(unit(argument));
    } catch (error) {
      promise = Promise.reject(error);
    }
    promise.then(
      (value) => {
        if (value !== undefined) this.#stop(index, () => this.resolve(value));
        this.#end(index, after);
      },
      (error) => {
        this.#stop(index, () => this.reject(error));
        this.#end(index, after);
      },
    );
  }

  #stop(index, decide) {
    this.stopped = true;
    if (index >= this.#first) return;
    this.#first = index;
    this.#decide = decide;
  }

  #end(index, after) {
    this.#running--;
    if (!this.stopped) after(index);
    this.settle();
  }

  settle() {
    if (this.#running === 0) this.#decide();
  }
}

/**
 * Runs units as soon as the units that they depend on are done.
 * @param {[number[], Unit<void>][]} list in program order; a unit depends on earlier ones only
 * @returns {Promise<unknown>} the value of the first unit that left
 */
export function par(list) {
  return new Promise((resolve, reject) => {
    const units = new Units(resolve, reject);
    const missing = list.map(([needed]) => needed.length);
    /** @type {number[][]} */
    const dependents = list.map(() => []);
    list.forEach(([needed], index) => needed.forEach((earlier) => dependents[earlier].push(index)));
    const start = (index) => units.start(index, list[index][1], undefined, done);
    const done = (index) => {
      for (const next of dependents[index]) if (--missing[next] === 0) start(next);
    };
    list.forEach(([needed], index) => needed.length === 0 && start(index));
    units.settle();
  });
}

/**
 * Runs a unit for each index of an array (numbers), or each own key of an object (strings), at most `most` at
 * once.
 * @param {unknown} collection
 * @param {Unit<number | string>} unit
 * @param {number} most
 * @returns {Promise<unknown>}
 */
export function pfor(collection, unit, most) {
  return new Promise((resolve, reject) => {
    const keys = keysOf(collection);
    const units = new Units(resolve, reject);
    let next = 0;
    const start = () => {
      const index = next++;
      units.start(index, unit, keys ? keys[index] : index, more);
    };
    const count = keys ? keys.length : Object(collection).length;
    const more = () => next < count && start();
    while (next < count && next < most) start();
    units.settle();
  });
}

/** Returns the keys to iterate over; undefined if they are all numbers from 0 on. */
function keysOf(collection) {
  if (ArrayBuffer.isView(collection) || typeof collection === "string") return undefined;
  const keys = Object.keys(Object(collection));
  if (!Array.isArray(collection)) return keys;
  return keys.length === collection.length ? undefined : keys.map(Number);
}
