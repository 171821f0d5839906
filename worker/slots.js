// A table of runs or calls by their ascending numbers, with many thousands of insertions and deletions a
// second.
//
// A Map leaves its old table behind on each rehash, pointing to the next one. Once one of these is in the old
// generation, all later tables stay alive until the next full collection, together with their entries;
// copying them took a sixth of a worker's time.

const PLACES = 1024;

/**
 * Like a Map, for entries with their number in `id`.
 * @template {{id: number}} T
 */
export class Slots {
  /** @type {(T | undefined)[]} indexed by the entries' numbers modulo the length */
  #places = new Array(PLACES).fill(undefined);
  /** @type {Map<number, T>} entries whose place was taken, usually by a long-lived one */
  #others = new Map();

  /** @param {number} id */
  get(id) {
    const there = this.#places[id % PLACES];
    return there?.id === id ? there : this.#others.get(id);
  }

  /** @param {T} entry */
  add(entry) {
    const place = entry.id % PLACES;
    if (this.#places[place] === undefined) this.#places[place] = entry;
    else this.#others.set(entry.id, entry);
  }

  /** @param {number} id */
  delete(id) {
    const place = id % PLACES;
    if (this.#places[place]?.id === id) this.#places[place] = undefined;
    else this.#others.delete(id);
  }
}
