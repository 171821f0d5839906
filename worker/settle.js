// The end of a transaction: converts the changed parts of the state to a change set, and replaces the
// handler's own objects by copies. Nothing is modified until all values are known to be JSON.
//
// Objects that are still at their old position are processed through their drafts, so that the change set
// contains only actual changes. All others are copied in their current form: objects that the handler has
// created or moved.

import { ArrayDraft } from "./drafts.js";
import { ABSENT } from "./state.js";
import { TreeCopy, step } from "./values.js";

const { stringify } = JSON;

export class Settlement {
  /** @type {unknown[][]} the change set */
  ops = [];
  /** @type {TreeCopy | undefined} */
  #copy;
  /** @type {[object, string | number, unknown][]} the pending replacements: object, key and value */
  #places = [];
  /** The current position. */
  #slot = 0;
  /** @type {(string | number)[]} */
  #path = [];

  /** @param {import("./transaction.js").Transaction} transaction */
  constructor(transaction) {
    this.transaction = transaction;
    const { run, roots } = transaction;
    for (const [slot, old] of roots) {
      this.#slot = slot;
      const { holder } = run.slots[slot];
      if (holder.value !== old) this.#set(holder, "value");
      else this.#inside(old);
    }
  }

  /** The copies, created on first use. */
  get copy() {
    return (this.#copy ??= new TreeCopy(this.transaction.assigned));
  }

  text() {
    return this.ops.length > 0 ? stringify(this.ops) : "";
  }

  putInPlace() {
    for (const [target, key, value] of this.#places) target[key] = value;
  }

  /** Processes an object that is at its old position. */
  #inside(raw) {
    const draft = this.transaction.drafts.get(raw);
    if (draft === undefined) return;
    if (draft instanceof ArrayDraft) this.#array(draft);
    else this.#object(draft);
  }

  /** @param {import("./drafts.js").ObjectDraft} draft */
  #object(draft) {
    const { raw, old, added, removed, children } = draft;
    for (const key of removed) this.ops.push([this.#slot, [...this.#path, key]]);
    for (const [key, value] of old) {
      const isThere = value !== ABSENT && !removed.has(key);
      if (isThere && !added.has(key) && value !== raw[key]) this.#member(raw, key);
    }
    for (const key of added) this.#member(raw, key);
    for (const [value, { key }] of children) {
      if (raw[key] === value && draft.hasKept(/** @type {string} */ (key))) this.#below(key, value);
    }
  }

  /** @param {ArrayDraft} draft */
  #array(draft) {
    const { raw } = draft;
    if (draft.isWhole) return this.#whole(raw);
    const set = (index) => this.#member(raw, index);
    const kept = (index, value) => this.#below(index, value);
    const splice = (index, removed, added) => {
      const isLast = index + added === raw.length;
      if (isLast && removed > 0) this.ops.push([this.#slot, [...this.#path, "length"], index]);
      if (isLast || removed === added) {
        for (let i = index; i < index + added; i++) set(i);
      } else {
        const values = raw.slice(index, index + added).map((_, i) => this.#value(raw, index + i));
        this.ops.push([this.#slot, [...this.#path, index], removed, values]);
      }
    };
    draft.changes(set, splice, kept);
  }

  /** Replaces a whole array. */
  #whole(raw) {
    const copy = raw.map((_, i) => this.#value(raw, i));
    this.ops.push([this.#slot, [...this.#path], copy]);
  }

  #below(key, value) {
    this.#path.push(key);
    this.#inside(value);
    this.#path.pop();
  }

  #member(target, key) {
    this.#path.push(key);
    this.#set(target, key);
    this.#path.pop();
  }

  #set(target, key) {
    this.ops.push([this.#slot, [...this.#path], this.#copied(target, key, () => this.#name())]);
  }

  #value(target, index) {
    return this.#copied(target, index, () => this.#name() + step(index));
  }

  #copied(target, key, name) {
    const value = target[key];
    if (typeof value !== "object" || value === null) return value;
    const copy = this.copy.raw(value, name, this.#path.length);
    this.#places.push([target, key, copy]);
    return copy;
  }

  /** Returns the name of the current position, for errors. */
  #name() {
    return this.transaction.run.names[this.#slot] + this.#path.map(step).join("");
  }
}

/**
 * Whether the object of a view is part of the state that a transaction produces; `raws` are the objects that
 * have moved.
 */
export function isInState(transaction, node, raws, known) {
  const { raw, parent, cell } = node;
  let is = known.get(node);
  if (is !== undefined) return is;
  if (raws.has(raw)) is = true;
  else if (parent === undefined) is = cell.holder.value === raw;
  else is = hasKept(transaction.drafts.get(parent.raw), node) && isInState(transaction, parent, raws, known);
  known.set(node, is);
  return is;
}

function hasKept(draft, { raw, key }) {
  if (draft === undefined) return true;
  return draft instanceof ArrayDraft ? draft.raw.includes(raw) : draft.raw[key] === raw && draft.hasKept(key);
}
