// What a transaction has changed of an object or array that was there before: which members and elements, as long as it
// runs, so that the change set costs what was changed. The values themselves are looked at when it commits.

import { ABSENT } from "./state.js";

const { hasOwn } = Object;

/** After so many times an array that is spliced once more is one entry: each time moves what stands behind it. */
const SPLICES = 16;

/** What both kinds have. */
class Draft {
  /** Views of what stood in it before, and has changed itself. @type {Map<object, import("./views.js").Node>} by what they are of */
  children = new Map();

  constructor(raw) {
    this.raw = raw;
  }
}

export class ObjectDraft extends Draft {
  /** What members were before, ABSENT if they were not there. @type {Map<string, unknown>} */
  old = new Map();
  /** Members that are new, or that were deleted and set again: they come last, in this order. @type {Set<string>} */
  added = new Set();
  /** Members that were there and were deleted, for a time at least. @type {Set<string>} */
  removed = new Set();

  /** A member is about to be set. */
  put(key) {
    const { raw, old } = this;
    const value = hasOwn(raw, key) ? raw[key] : undefined;
    if (!old.has(key)) old.set(key, value === undefined ? ABSENT : value);
    if (value === undefined) this.added.add(key);
  }

  /** A member is about to be deleted. */
  remove(key) {
    const { raw, old } = this;
    if (!old.has(key)) old.set(key, raw[key]);
    if (old.get(key) !== ABSENT) this.removed.add(key);
    this.added.delete(key);
  }

  /** Whether a member is what it was. */
  hasKept(key) {
    const { raw, old } = this;
    return !this.removed.has(key) && (!old.has(key) || old.get(key) === raw[key]);
  }
}

/** Elements that were there before, or so many new ones. @typedef {{from: number, count: number, isNew: boolean}} Piece */

export class ArrayDraft extends Draft {
  /** Its length before. */
  length;
  /** Up to here elements are where they were. */
  #floor;
  /** What elements below that were before they were set. @type {Map<number, unknown>} */
  #old = new Map();
  /** What it was before, once elements were moved. @type {unknown[] | undefined} */
  before;
  /** What it is made of, then; none if it has changed altogether. @type {Piece[] | undefined} */
  pieces;
  #splices = 0;

  constructor(raw) {
    super(raw);
    this.length = this.#floor = raw.length;
  }

  /** Whether what it was is of no use to say what it is. */
  get isWhole() {
    return this.before !== undefined && this.pieces === undefined;
  }

  /** An element is about to be set, or appended. */
  put(index) {
    const { raw } = this;
    if (this.before === undefined) {
      if (index < this.#floor && !this.#old.has(index)) this.#old.set(index, raw[index]);
    } else if (index === raw.length) {
      this.#replace(index, 0, 1);
    }
  }

  /** It is about to be cut. */
  cut(length) {
    if (this.before === undefined) this.#floor = Math.min(this.#floor, length);
    else this.#replace(length, this.raw.length - length, 0);
  }

  /** As many elements are about to give their places to others, and those behind them to move. */
  splice(start, removed, added) {
    this.#begin();
    if (++this.#splices > SPLICES) this.pieces = undefined;
    this.#replace(start, removed, added);
  }

  /** Any element may be about to move. */
  move() {
    this.#begin();
    this.pieces = undefined;
  }

  /**
   * Goes through what has changed, with the indices that hold now.
   * @param {(index: number) => void} set an element
   * @param {(index: number, removed: number, added: number) => void} splice
   * @param {(index: number, value: object) => void} kept of an object that is where it was, whose content has changed
   */
  changes(set, splice, kept) {
    if (this.before !== undefined) return this.#moved(set, splice, kept);
    const { raw, children } = this;
    const end = Math.min(this.#floor, raw.length);
    for (const [index, old] of this.#old) if (index < end && raw[index] !== old) set(index);
    if (end < this.length || end < raw.length) splice(end, this.length - end, raw.length - end);
    for (const [value, { key }] of children) {
      const index = Number(key);
      const isOld = !this.#old.has(index) || this.#old.get(index) === value;
      if (index < end && raw[index] === value && isOld) kept(index, value);
    }
  }

  #moved(set, splice, kept) {
    const { raw, before, children } = this;
    let [at, next, added] = [0, 0, 0];
    const flush = (removed) => {
      if (removed > 0 || added > 0) splice(at - added, removed, added);
      added = 0;
    };
    for (const { from, count, isNew } of /** @type {Piece[]} */ (this.pieces)) {
      if (isNew) {
        added += count;
        at += count;
        continue;
      }
      flush(from - next);
      for (let i = 0; i < count; i++) {
        const value = raw[at + i];
        if (value !== before?.[from + i]) set(at + i);
        else if (children.has(value)) kept(at + i, value);
      }
      at += count;
      next = from + count;
    }
    flush(this.length - next);
  }

  /** Elements are about to move: remembers what it was. */
  #begin() {
    if (this.before !== undefined) return;
    const { raw } = this;
    const floor = this.#floor;
    const before = raw.slice(0, floor);
    for (const [index, old] of this.#old) if (index < floor) before[index] = old;
    this.before = before;
    this.pieces = [piece(0, floor, false), piece(0, raw.length - floor, true)].filter(({ count }) => count > 0);
  }

  /** Puts new elements in the place of others. */
  #replace(start, removed, added) {
    if (this.pieces === undefined) return;
    const [end, pieces] = [start + removed, /** @type {Piece[]} */ ([])];
    const push = (next) => {
      const last = pieces.at(-1);
      if (next.count === 0) return;
      if (last?.isNew && next.isNew) last.count += next.count;
      else pieces.push(next);
    };
    let at = 0;
    let isPut = false;
    const put = () => {
      if (!isPut) push(piece(0, added, true));
      isPut = true;
    };
    for (const { from, count, isNew } of this.pieces) {
      const before = Math.min(Math.max(start - at, 0), count);
      const behind = Math.min(Math.max(at + count - end, 0), count);
      push(piece(from, before, isNew));
      if (at + count >= start && before < count) put();
      if (before < count) push(piece(from + count - behind, behind, isNew));
      at += count;
    }
    put();
    this.pieces = pieces;
  }
}

/** @returns {Piece} */
function piece(from, count, isNew) {
  return { from, count, isNew };
}
