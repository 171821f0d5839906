// What comes and goes under numbers that count up, runs and calls, many thousands a second.
//
// In a Map each rehash leaves a table behind that points to the next one. Once one of them is old, all that follow live
// on until the next full collection, with whatever was in them: a sixth of a worker's time went into copying that.

const PLACES = 1024;

/**
 * Like a Map, for entries that have their number in `id`.
 * @template {{id: number}} T
 */
export class Slots {
  /** @type {(T | undefined)[]} an entry's place is the end of its number */
  #places = new Array(PLACES).fill(undefined);
  /** @type {Map<number, T>} those that found their place taken: by one that takes long, as a rule */
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
