// A run: one request in a handler, from the RUN frame to END or FAIL. Handlers access it as `$r`.

import { SITE, describe, stackOf, unspeakable } from "./errors.js";
import { ANSWER, CALL, COMMIT, DECLARE, END, FAIL, REMOVE, TWICE } from "./frames.js";
import { checkShared, isDamaged } from "./intrinsics.js";
import { par, pfor } from "./par.js";
import { snapshot } from "./program.js";
import { METHODS, Response, checkedStatus } from "./query.js";
import { Resource, ResourceError, bodyOf } from "./resource.js";
import { Transaction } from "./transaction.js";
import { stringify } from "./views.js";

/** Flags of a call: its response goes to the client; no code reads its response. */
const PASSES = 1;
const UNREAD = 2;

/** The kind of a failure whose handler damaged the worker, whatever it threw. */
const DAMAGES = 7;

const HAS_ANSWER = 1;
const HAS_CHANGES = 2;
const NOTHING_ANSWERED = 4;

/** @typedef {{status: number, headers: string, kind: number, content: string | Uint8Array | undefined}} Answer */

export class Run {
  /** The execution time of its code in milliseconds. */
  time = 0;
  ended = false;
  /** The number of its program, and the index of its handler. */
  program = 0;
  handler = 0;
  /** Whether `respond` has been called. */
  #answered = false;
  /** @type {Answer | undefined} */
  #answer;
  #committed = false;
  #suspended = false;
  #cells;
  /** @type {Transaction | undefined} of a writer that has not committed */
  transaction;
  /** The version that the run reads; Infinity is the newest. */
  version = 0;
  /** @type {import("./state.js").Cell[]} */
  slots = [];
  /** Names of the cells, for errors. */
  names = [];
  /** @type {Map<object, import("./views.js").Node> | undefined} */
  nodes;
  #base = 0;

  /**
   * @param {import("./worker.js").Worker} worker
   * @param {number} id
   * @param {import("./program.js").Service} service the service of the handler
   * @param {number} method
   */
  constructor(worker, id, service, method) {
    this.worker = worker;
    this.id = id;
    this.service = service;
    this.method = method;
    this.response = new Response(this);
  }

  /** Opens the cells that the run may use. */
  open(handler, cells, version, isWriter) {
    this.slots = cells;
    this.names = handler.names;
    this.view = handler.Cells;
    this.#base = version;
    this.version = isWriter ? Infinity : version;
    if (isWriter) this.transaction = new Transaction(this, version + 1);
  }

  // Methods for emitted code.

  get cells() {
    return (this.#cells ??= new this.view(this));
  }

  initial(slot, value) {
    if (this.transaction === undefined || this.slots[slot].holder.value !== undefined) return;
    const first = value();
    if (first !== undefined) this.transaction.setCell(slot, first);
  }

  /** Makes a call whose result the handler reads. */
  call(site, resource, method, values) {
    return this.#call(site, 0, resource, method, values);
  }

  /** Makes a call whose result no code of the handler reads: it becomes part of the response unchanged. */
  unread(site, resource, method, values) {
    return this.#call(site, UNREAD, resource, method, values);
  }

  /** Makes a call whose response goes to the client unchanged. */
  async pass(site, resource, method, values) {
    if (this.#answered) {
      this.#twice();
      await this.#call(site, 0, resource, method, values);
      return;
    }
    this.#answered = true;
    try {
      const result = await this.#call(site, PASSES, resource, method, values);
      if (result === PASS) return;
      this.#answered = false;
      this.respond(result);
    } catch (error) {
      this.#answered = false;
      throw error;
    }
  }

  respond(value) {
    if (this.#answered) return this.#twice();
    this.#set(Response.statusOf(this.response) ?? 0, undefined, value);
  }

  /** Sends a status response, `respond {302: {Location: …}}`. */
  answer(status, headers, body) {
    if (this.#answered) return this.#twice();
    this.#set(checkedStatus(status), headers, body);
  }

  par(...units) {
    return par(units);
  }

  pfor(collection, unit) {
    return pfor(collection, unit, this.service.program.most);
  }

  /** Commits early: from here on, the run is a reader of its own result. */
  commit() {
    if (this.transaction === undefined) return;
    const changes = this.#close((transaction) => transaction.commitEarly());
    this.worker.outbox.begin(COMMIT, this.id).text(changes).end();
    this.#committed = true;
    this.#holdVersions();
  }

  /** Declares a nested resource, with a snapshot of the variables that it uses. */
  declare(site, resource, path, captures) {
    const place = String(path);
    const text = snapshot(captures);
    const initials = this.service.initials(resource, text);
    const { outbox } = this.worker;
    const { call, promise } = this.#waiting(site, true, false);
    outbox.begin(DECLARE, this.id).u32(call).u32(site).u16(resource);
    outbox.text(place).text(text).text(initials).end();
    return promise;
  }

  /** Implements `response.remove()`. */
  remove() {
    this.worker.outbox.begin(REMOVE, this.id).end();
  }

  // Methods for the worker.

  /** Follows an asynchronous handler; others may write meanwhile. */
  follow(promise) {
    if (this.slots.length > 0 && this.transaction === undefined && !this.#committed) this.#holdVersions();
    promise.then(() => this.finish(), (error) => this.fail(error));
  }

  /** Sends the response of a run that continues. */
  sendAnswer() {
    if (this.ended || this.#answer === undefined) return;
    this.#writeAnswer(this.worker.outbox.begin(ANSWER, this.id)).end();
    this.#answer = undefined;
  }

  finish() {
    if (this.ended) return;
    let changes;
    try {
      if (!this.#answered && this.#hasSet()) this.respond(undefined);
      checkShared();
      changes = this.transaction === undefined ? "" : this.#close((transaction) => transaction.commit());
    } catch (error) {
      return this.fail(error);
    }
    const answer = this.#answer !== undefined ? HAS_ANSWER : 0;
    const flags = answer | (changes !== "" ? HAS_CHANGES : 0) | (this.#answered ? 0 : NOTHING_ANSWERED);
    const frame = this.worker.outbox.begin(END, this.id).u8(flags);
    if (answer !== 0) this.#writeAnswer(frame);
    if (changes !== "") frame.text(changes);
    this.#end();
    frame.u32(this.#micros()).end();
  }

  /** @param {unknown} error */
  fail(error) {
    if (this.ended) return;
    this.#undo();
    const { kind, site, status, message, stack } = describe(error);
    const damages = isDamaged();
    if (damages) {
      // The gateway ignores the frames behind this one.
      this.#answer = undefined;
      this.worker.sendAnswers();
      this.worker.isDamageReported = true;
    }
    const frame = this.worker.outbox.begin(FAIL, this.id).u8(damages ? DAMAGES : kind).u32(site).u16(status);
    frame.text(message).text(stack).end();
    this.#end();
  }

  /**
   * Cancels a run whose client has disconnected, and drops the calls that it waits for, so that none of its
   * code runs again. A writer continues, unless the gateway cancels it as well: its writes are then rolled
   * back, and it sends no further frames.
   */
  cancel(isGivenUp) {
    if (isGivenUp) this.#undo();
    else if (this.transaction !== undefined || this.#committed) return;
    else this.worker.outbox.begin(END, this.id).u8(NOTHING_ANSWERED).u32(this.#micros()).end();
    this.#end();
  }

  whyReadOnly() {
    if (this.ended) return "the run is over";
    if (this.#committed) return "the run has committed already (S rule 6)";
    const method = METHODS[this.method];
    if (this.method <= 1) return `${method} reads the last committed version, and changes nothing (S rule 3)`;
    return "this handler only reads its state (S rule 4)";
  }

  // Helpers of both.

  #call(site, flags, resource, method, values) {
    if (!(resource instanceof Resource)) throw new TypeError("only a resource can be called (S rule 15)");
    const { url, query, kind, content } = requested(site, resource, method, values);
    const { call, promise } = this.#waiting(site, false, flags === UNREAD);
    const frame = this.worker.outbox.begin(CALL, this.id).u32(call).u32(site).u8(flags).u8(method);
    frame.text(url).text(query).body(kind, /** @type {any} */ (content)).end();
    return promise;
  }

  /** Returns a promise for the DONE frame of a call. */
  #waiting(site, isDeclaration, isUnread) {
    if (this.ended) return { call: 0, promise: new Promise(() => {}) };
    const { waiting } = this.worker;
    const call = this.worker.nextCall();
    const promise = new Promise((resolve, reject) => {
      waiting.add({ id: call, run: this, site, isDeclaration, isUnread, resolve, reject });
    });
    return { call, promise };
  }

  #set(status, headers, value) {
    const { kind, content } = bodyOf(value ?? undefined, json);
    this.#answer = { status, headers: Response.headersOf(this.response, headers), kind, content };
    this.#answered = true;
    this.worker.answered(this);
  }

  #hasSet() {
    return Response.statusOf(this.response) !== undefined || Response.headersOf(this.response, undefined) !== "";
  }

  #writeAnswer(frame) {
    const { status, headers, kind, content } = /** @type {Answer} */ (this.#answer);
    return frame.u16(status).text(headers).body(kind, content);
  }

  #twice() {
    const stack = stackOf(new Error());
    this.worker.outbox.begin(TWICE, this.id).text(stack).end();
  }

  /** Ends the transaction, and returns its change set. @param {(transaction: Transaction) => string} commit */
  #close(commit) {
    const transaction = /** @type {Transaction} */ (this.transaction);
    const changes = commit(transaction);
    this.version = changes === "" ? this.#base : transaction.version;
    this.transaction = undefined;
    return changes;
  }

  #micros() {
    return Math.round(this.time * 1000);
  }

  #undo() {
    this.transaction?.undo();
    this.transaction = undefined;
  }

  #holdVersions() {
    this.#suspended = true;
    for (const cell of this.slots) cell.enter(this.version);
  }

  #end() {
    this.ended = true;
    this.worker.ended(this);
    if (this.#suspended) for (const cell of this.slots) cell.leave(this.version);
  }
}

/** Returns the request of a call. If the call is invalid, the error contains the call site. */
function requested(site, resource, method, values) {
  try {
    return resource.request(method, values);
  } catch (error) {
    if (error instanceof ResourceError) error[SITE] = site;
    throw error;
  }
}

/** The result of a call whose response went to the client. */
export const PASS = Symbol("passed on");

function json(value) {
  let text;
  try {
    text = stringify(value);
  } catch (error) {
    throw unspeakable(value, error);
  }
  if (text === undefined) throw unspeakable(value, new Error("it has no JSON representation"));
  return text;
}
