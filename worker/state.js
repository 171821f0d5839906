// The cells of a worker: their newest values, and the history that older runs still read.
//
// Writers modify the raw tree in place, and save the old values first. So a run that throws is rolled back,
// and runs that read an older version use the saved values. Nothing is ever copied for a reader. Saved values
// are dropped when neither an active run nor a version that is not durable yet needs them.
//
// The order of an object's members is visible to runs. A deleted member therefore keeps its position, with
// the value `undefined`, which is never a value of state, until no run can read it any more; `hollow`
// contains the objects with such members.
//
// A cell's value is an ordinary member of its holder, so that the cell itself is written like anything inside
// it.

const { hasOwn, assign } = Object;
const { isArray } = Array;
const { ownKeys } = Reflect;
const { parse } = JSON;

/** The old value of a new member. */
export const ABSENT = Symbol("absent");
/** The key of an entry with a shallow copy of the whole object or array. */
const WHOLE = Symbol("whole");
/** The member of a holder that contains the cell's value. */
export const VALUE = "value";

/** The value at a position before a version. */
class Entry {
  constructor(target, key, old, version) {
    this.target = target;
    this.key = key;
    this.old = old;
    this.version = version;
  }
}

export class Cell {
  /** @type {Map<object, Map<string | symbol, Entry[]>>} by object and key, oldest first */
  #history = new Map();
  /** @type {Entry[]} all entries, oldest first */
  #log = [];
  #dropped = 0;
  /** @type {Map<number, number>} the number of active runs that read a version */
  #readers = new Map();
  /** @type {Cell | undefined} the predecessor of this whole value, for older runs */
  older;
  /** @type {WeakSet<object> | undefined} objects that may have deleted members */
  hollow;

  constructor(value, version) {
    this.holder = { value };
    /** The version of the newest value, including that of a writer in progress. */
    this.version = version;
    /** The oldest version that can be read. */
    this.since = version;
  }

  /** Sets the whole value; `undefined` if there is none. */
  set(value, version) {
    this.note(this.holder, VALUE, this.holder.value, version);
    this.holder.value = value;
  }

  /**
   * Saves the value at a position, before `version` changes it. Only the first change within a version is
   * recorded.
   */
  note(target, key, old, version) {
    let places = this.#history.get(target);
    if (places === undefined) this.#history.set(target, (places = new Map()));
    const entries = places.get(key);
    if (isOf(version, entries) || isOf(version, places.get(WHOLE))) return;
    const entry = new Entry(target, key, old, version);
    if (entries === undefined) places.set(key, [entry]);
    else entries.push(entry);
    this.#log.push(entry);
  }

  /** Saves a whole object or array. */
  noteWhole(target, version) {
    this.note(target, WHOLE, isArray(target) ? target.slice() : { ...target }, version);
  }

  /** Returns the current value of `target[key]`; ABSENT if there is none. */
  now(target, key) {
    const value = hasOwn(target, key) ? target[key] : undefined;
    return value === undefined ? ABSENT : value;
  }

  /** Returns the value of `target[key]` at a version; ABSENT if there was none. */
  at(target, key, version) {
    const places = this.#history.get(target);
    if (places !== undefined) {
      // For appended elements, only the previous length is saved.
      if (isArray(target) && key !== "length" && Number(key) >= this.at(target, "length", version)) return ABSENT;
      const entry = first(places.get(key), version);
      const whole = first(places.get(WHOLE), version);
      // Within a version, an entry for a single member is older: otherwise it would not have been saved.
      if (entry !== undefined && (whole === undefined || entry.version <= whole.version)) return entry.old;
      if (whole !== undefined) return this.now(whole.old, key);
    }
    return this.now(target, key);
  }

  /** Returns the current keys of an object, in order. */
  keys(target) {
    return this.hollow?.has(target) ? ownKeys(target).filter((key) => target[key] !== undefined) : ownKeys(target);
  }

  /** Returns the keys of an object at a version. */
  keysAt(target, version) {
    const places = this.#history.get(target);
    if (places === undefined) return this.keys(target);
    if (isArray(target)) return [...Array(this.at(target, "length", version)).keys()].map(String).concat("length");
    const names = ownKeys(first(places.get(WHOLE), version)?.old ?? target);
    return names.filter((key) => this.at(target, key, version) !== ABSENT);
  }

  /** Sets a member of an object; a new member becomes the last one. */
  put(target, key, value, version) {
    const old = this.now(target, key);
    if (old === ABSENT && this.hollow?.has(target) && hasOwn(target, key)) {
      // A deleted member, whose position is still reserved.
      this.noteWhole(target, version);
      delete target[key];
    } else {
      this.note(target, key, old, version);
    }
    target[key] = value;
  }

  /** Deletes a member of an object. */
  remove(target, key, version) {
    const old = this.now(target, key);
    if (old === ABSENT) return;
    this.note(target, key, old, version);
    const noted = this.#history.get(target)?.get(key)?.at(-1);
    if (noted !== undefined && noted.version === version && noted.old === ABSENT) {
      delete target[key];
    } else {
      target[key] = undefined;
      (this.hollow ??= new WeakSet()).add(target);
    }
  }

  /** Rolls back all changes of a version. */
  undo(version, before) {
    const log = this.#log;
    while (log.length > this.#dropped && /** @type {Entry} */ (log.at(-1)).version === version) {
      const entry = /** @type {Entry} */ (log.pop());
      restore(entry);
      const places = /** @type {Map<unknown, Entry[]>} */ (this.#history.get(entry.target));
      /** @type {Entry[]} */ (places.get(entry.key)).pop();
      this.#tidy(entry, places);
    }
    this.version = before;
  }

  /** Registers a longer run as a reader of a version. */
  enter(version) {
    this.#readers.set(version, (this.#readers.get(version) ?? 0) + 1);
  }

  leave(version) {
    const count = /** @type {number} */ (this.#readers.get(version)) - 1;
    if (count === 0) this.#readers.delete(version);
    else this.#readers.set(version, count);
  }

  /** Drops saved values that neither active nor future runs can read; future runs read at `durable` or later. */
  forget(durable) {
    if (this.older !== undefined && durable >= this.since) this.older = undefined;
    const log = this.#log;
    if (log.length === this.#dropped || log[this.#dropped].version > durable) return;
    let floor = durable;
    for (const version of this.#readers.keys()) if (version < floor) floor = version;
    while (this.#dropped < log.length && log[this.#dropped].version <= floor) {
      const entry = log[this.#dropped];
      log[this.#dropped++] = /** @type {any} */ (undefined);
      const places = /** @type {Map<unknown, Entry[]>} */ (this.#history.get(entry.target));
      /** @type {Entry[]} */ (places.get(entry.key)).shift();
      this.#close(entry, places);
      this.#tidy(entry, places);
    }
    if (this.#dropped === log.length) this.hollow = undefined;
    if (this.#dropped * 2 > log.length) {
      log.splice(0, this.#dropped);
      this.#dropped = 0;
    }
  }

  /** Removes the reserved positions of deleted members that no run can read any more. */
  #close({ target, key }, places) {
    if (!this.hollow?.has(target)) return;
    for (const name of key === WHOLE ? ownKeys(target) : [key]) {
      const isNeeded = places.get(name)?.length > 0 || places.get(WHOLE)?.length > 0;
      if (!isNeeded && target[name] === undefined) delete target[name];
    }
  }

  #tidy({ target, key }, places) {
    if (places.get(key).length > 0) return;
    places.delete(key);
    if (places.size === 0) this.#history.delete(target);
  }

  /** The number of saved values. */
  get noted() {
    return this.#log.length - this.#dropped;
  }
}

function isOf(version, entries) {
  return entries !== undefined && entries[entries.length - 1].version === version;
}

function first(entries, version) {
  if (entries === undefined) return undefined;
  for (const entry of entries) if (entry.version > version) return entry;
  return undefined;
}

/** @param {Entry} entry */
function restore({ target, key, old }) {
  if (key !== WHOLE) {
    if (old === ABSENT) delete target[key];
    else target[key] = old;
  } else if (isArray(target)) {
    target.length = old.length;
    for (let i = 0; i < old.length; i++) target[i] = old[i];
  } else {
    for (const name of ownKeys(target)) delete target[name];
    assign(target, old);
  }
}

/** All cells of a worker, by number. */
export class Cells {
  /** @type {Map<number, Cell>} */
  #cells = new Map();

  /** Returns the cell for a run that reads a version. */
  find(id, version, durable) {
    let cell = this.#cells.get(id);
    if (cell === undefined) this.#cells.set(id, (cell = new Cell(undefined, 0)));
    cell.forget(durable);
    while (cell.since > version && cell.older !== undefined) cell = cell.older;
    if (cell.since > version) throw new Error(`version ${version} of cell ${id} is no longer available`);
    return cell;
  }

  /** Handles a STATE frame. */
  receive(id, kind, version, text) {
    const cell = this.#cells.get(id);
    if (kind === 1) return apply(cell, parse(text), version);
    const whole = new Cell(kind === 0 ? parse(text) : undefined, version);
    // Not after a version decrease: the existing value was then never committed.
    if (cell !== undefined && cell.version < version) whole.older = cell;
    this.#cells.set(id, whole);
  }

  delete(id) {
    this.#cells.delete(id);
  }
}

/** Applies the change sets of another worker. */
function apply(cell, sets, version) {
  for (const ops of sets) for (const op of ops) change(cell, op, version);
  cell.version = version;
}

function change(cell, op, version) {
  const path = op[1];
  let target = cell.holder;
  let key = VALUE;
  for (const step of path) {
    target = target[key];
    key = step;
  }
  if (target === cell.holder) {
    cell.set(op[2], version);
  } else if (op.length === 2) {
    cell.remove(target, key, version);
  } else if (op.length === 4) {
    cell.noteWhole(target, version);
    splice(target, key, op[2], op[3]);
  } else if (key === "length" && isArray(target)) {
    cut(cell, target, op[2], version);
  } else {
    put(cell, target, key, op[2], version);
  }
}

/** Sets a member, or an element of an array, which may be appended. */
export function put(cell, target, key, value, version) {
  if (!isArray(target)) {
    cell.put(target, key, value, version);
  } else if (Number(key) === target.length) {
    cell.note(target, "length", target.length, version);
    target.push(value);
  } else {
    cell.note(target, String(key), target[key], version);
    target[key] = value;
  }
}

/** The maximum number of arguments in a call; engines limit it. */
const SPREAD = 1 << 12;

/** Like `Array.prototype.splice`, for any number of values. */
export function splice(target, start, count, values) {
  if (values.length <= SPREAD) {
    target.splice(start, count, ...values);
    return;
  }
  const rest = target.slice(start + count);
  target.length = start;
  for (const value of values) target.push(value);
  for (const value of rest) target.push(value);
}

/** Truncates an array. */
export function cut(cell, target, length, version) {
  for (let i = length; i < target.length; i++) cell.note(target, String(i), target[i], version);
  cell.note(target, "length", target.length, version);
  target.length = length;
}
