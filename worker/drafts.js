// Drafts: the changes that a transaction has made to an existing object or array. They record which members
// and elements have changed, so that the cost of the change set is proportional to the changes. The new
// values are read when the transaction commits.

import { ABSENT } from "./state.js";

const { hasOwn } = Object;

/**
 * The maximum number of splices that are tracked for an array. Beyond it, the array is sent as a whole, since
 * every splice moves the elements behind it.
 */
const SPLICES = 16;

/** The common part of both kinds. */
class Draft {
  /** Views of its changed members. @type {Map<object, import("./views.js").Node>} by their raw objects */
  children = new Map();

  constructor(raw) {
    this.raw = raw;
  }
}

export class ObjectDraft extends Draft {
  /** The previous values of members; ABSENT for new ones. @type {Map<string, unknown>} */
  old = new Map();
  /** New members, and members that were deleted and set again, in order. @type {Set<string>} */
  added = new Set();
  /** Previous members that have been deleted, at least temporarily. @type {Set<string>} */
  removed = new Set();

  /** Records that a member is about to be set. */
  put(key) {
    const { raw, old } = this;
    const value = hasOwn(raw, key) ? raw[key] : undefined;
    if (!old.has(key)) old.set(key, value === undefined ? ABSENT : value);
    if (value === undefined) this.added.add(key);
  }

  /** Records that a member is about to be deleted. */
  remove(key) {
    const { raw, old } = this;
    if (!old.has(key)) old.set(key, raw[key]);
    if (old.get(key) !== ABSENT) this.removed.add(key);
    this.added.delete(key);
  }

  /** Whether a member has its previous value and position. */
  hasKept(key) {
    const { raw, old } = this;
    return !this.removed.has(key) && (!old.has(key) || old.get(key) === raw[key]);
  }
}

/** A sequence of previous or new elements. @typedef {{from: number, count: number, isNew: boolean}} Piece */

export class ArrayDraft extends Draft {
  /** The previous length. */
  length;
  /** The elements below this index are at their previous positions. */
  #floor;
  /** The previous values of the elements below it that were set. @type {Map<number, unknown>} */
  #old = new Map();
  /** The previous elements, once elements have moved. @type {unknown[] | undefined} */
  before;
  /** The composition after a move; undefined if it is sent as a whole. @type {Piece[] | undefined} */
  pieces;
  #splices = 0;

  constructor(raw) {
    super(raw);
    this.length = this.#floor = raw.length;
  }

  /** Whether the array must be sent as a whole. */
  get isWhole() {
    return this.before !== undefined && this.pieces === undefined;
  }

  /** Records that an element is about to be set or appended. */
  put(index) {
    const { raw } = this;
    if (this.before === undefined) {
      if (index < this.#floor && !this.#old.has(index)) this.#old.set(index, raw[index]);
    } else if (index === raw.length) {
      this.#replace(index, 0, 1);
    }
  }

  /** Records that the array is about to be truncated. */
  cut(length) {
    if (this.before === undefined) this.#floor = Math.min(this.#floor, length);
    else this.#replace(length, this.raw.length - length, 0);
  }

  /** Records that `removed` elements are about to be replaced by `added` ones, and the following ones to move. */
  splice(start, removed, added) {
    this.#begin();
    if (++this.#splices > SPLICES) this.pieces = undefined;
    this.#replace(start, removed, added);
  }

  /** Records that any element may move. */
  move() {
    this.#begin();
    this.pieces = undefined;
  }

  /**
   * Reports all changes, with current indices.
   * @param {(index: number) => void} set an element
   * @param {(index: number, removed: number, added: number) => void} splice
   * @param {(index: number, value: object) => void} kept an object at its previous position, whose content
   * has changed
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

  /** Saves the previous elements, since elements are about to move. */
  #begin() {
    if (this.before !== undefined) return;
    const { raw } = this;
    const floor = this.#floor;
    const before = raw.slice(0, floor);
    for (const [index, old] of this.#old) if (index < floor) before[index] = old;
    this.before = before;
    this.pieces = [piece(0, floor, false), piece(0, raw.length - floor, true)].filter(({ count }) => count > 0);
  }

  /** Replaces elements by new ones. */
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
