// The worker of S services: receives frames from the gateway, runs handlers, and sends frames back. It is
// started as `node worker.js SOCKET WATCHDOG NUMBER`, or with Bun or Deno; the first two arguments are file
// descriptors (connection.js).
//
// A worker has no HTTP, does not listen, and has no access to clients or services: the gateway is responsible
// for all of these. The files: frames.js (the protocol), turn.js (attribution of running code to runs),
// run.js (a request: `$r`), program.js (a script: `$s`), query.js and resource.js (the values of requests and
// calls), par.js, slots.js (runs and calls by number), state.js (cells and their history), views.js (the
// handlers' view of cells), transaction.js, drafts.js and settle.js (writers' changes), values.js (values
// that can be stored), errors.js, log.js, packages.js, watchdog.js, guard.js (protection of the process from
// handlers), intrinsics.js (protection of built-in objects).

import process from "node:process";

import { inherited } from "./connection.js";
import { DeclarationError, SITE, describe } from "./errors.js";
import {
  BROKEN, CANCEL, Cursor, DAMAGED, DONE, FORGET, HELLO, INSTANCE, Inbox, JSON_ASCII, JSON_TEXT, LOAD, Outbox, PING, PONG,
  READY, RUN, STATE,
} from "./frames.js";
import { guard } from "./guard.js";
import { checkShared, isDamaged, lockObject, lockShared } from "./intrinsics.js";
import { ERROR, log, takeConsole } from "./log.js";
import { Program, restored } from "./program.js";
import { Query } from "./query.js";
import { ResourceError } from "./resource.js";
import { PASS, Run } from "./run.js";
import { Slots } from "./slots.js";
import { Cells } from "./state.js";
import { Turn } from "./turn.js";
import { Verbatim } from "./views.js";
import { COUNT, SPAN, watch } from "./watchdog.js";

const WRITER = 1;
const INITIALISE = 2;

/** CANCEL: the run is cancelled even if it is a writer. */
const GIVE_UP = 1;

const OK = 0;
const PASSED = 3;
const REFUSED = 4;

/** The status of a call with an invalid response, as in the gateway. */
const BROKEN_ANSWER = 502;

/** The engine's original function: handlers get a wrapped one (guard.js). */
const later = setImmediate;
/** The size of the read buffer: several bodies of 100 KB, which the gateway sends together. */
const READ = 1 << 19;

export class Worker {
  /** @type {Map<number, Program>} */
  programs = new Map();
  /** @type {Slots<Run>} runs that have not ended */
  runs = new Slots();
  /** @type {Slots<{id: number, run: Run, site: number, isDeclaration: boolean, isUnread: boolean, resolve: Function, reject: Function}>} */
  waiting = new Slots();
  cells = new Cells();
  /** @type {Map<number, string | object>} captured variables, kept as text until their first use */
  #instances = new Map();
  /** @type {Run[]} runs that have responded since the last flush */
  #answered = [];
  #calls = 0;
  #cursor = new Cursor();
  #inbox = new Inbox();
  #isClosing = false;
  /** Whether a run has failed with damage, so that the gateway knows the cause. */
  isDamageReported = false;
  /** The number of programs that are being loaded. */
  #loading = 0;
  #goOn = Turn.afterAll(() => this.#give());
  #checkLater = Turn.afterAll(() => {
    if (isDamaged()) this.closeDamaged(this.turn.sole);
  });
  #flushLater = () => {
    if (!this.turn.active) this.#send();
  };

  #watched;
  /** @type {import("node:net").Socket | undefined} */
  #socket;
  /** Ends the process. */
  #ended = () => {};
  /** Set once the worker is connected. */
  outbox = /** @type {Outbox} */ (/** @type {unknown} */ (undefined));

  /** @param {Int32Array} watched shared with the watchdog */
  constructor(watched) {
    this.#watched = watched;
    this.turn = new Turn(watched);
  }

  /** @param {number} fd the socket's file descriptor */
  connect(fd, number, engine, ended) {
    const take = (length, buffer) => {
      this.#inbox.push(buffer, length);
      if (this.turn.active) return true;
      this.turn.begin();
      this.#give();
      return true;
    };
    // Node reads again only after all consequences of the last read are processed, so a single buffer
    // suffices.
    const onread = engine.startsWith("node") ? { buffer: Buffer.allocUnsafeSlow(READ), callback: take } : undefined;
    const socket = inherited(fd, onread);
    this.#socket = socket;
    this.#ended = ended;
    if (onread === undefined) socket.on("data", (chunk) => take(chunk.length, chunk));
    this.outbox = new Outbox(socket, () => this.turn.active || later(this.#flushLater));
    this.outbox.begin(HELLO, 0).u32(number).text(engine).end();
    socket.on("close", ended);
    socket.on("error", ended);
  }

  /**
   * Ends a worker that a handler has damaged, once its frames are written. The gateway starts a new one, and
   * repeats the other runs in it. A run whose code executes is the cause, and fails. Otherwise the handler of the
   * given run is reported, unless a program is being loaded, which may be the cause.
   * @param {Run} [run] the only run whose code may have done the damage
   */
  closeDamaged(run) {
    this.turn.leave();
    if (this.#isClosing) return;
    this.sendAnswers();
    if (!this.isDamageReported) {
      const cause = this.#loading > 0 ? undefined : run;
      this.outbox.begin(DAMAGED, cause?.program ?? 0).u16(cause?.handler ?? 0).end();
    }
    this.#send();
    this.#isClosing = true;
    this.#socket?.end(this.#ended);
  }

  nextCall() {
    this.#calls = (this.#calls + 1) >>> 0;
    return this.#calls;
  }

  /** Records that a run has responded; if the run continues, its response is sent before its end. */
  answered(run) {
    this.#answered.push(run);
  }

  ended(run) {
    if (this.turn.current === run) this.turn.leave();
    this.runs.delete(run.id);
  }

  /** Dispatches frames; after a frame that resumes a run, all of its consequences are processed first. */
  #give() {
    while (!this.#isClosing && this.#inbox.next(this.#cursor)) {
      if (isDamaged()) {
        this.closeDamaged(this.turn.sole);
        break;
      }
      if (this.#takeSafely(this.#cursor)) return this.#goOn();
    }
    this.turn.leave();
    try {
      this.#send();
    } finally {
      // Further frames are dispatched only while no turn is active.
      this.turn.end();
      this.#checkLater();
    }
  }

  /** Calls a callback for a run, in a turn of its own. */
  callBack(run, callback, all) {
    if (this.turn.active) return Reflect.apply(callback, undefined, all);
    if (isDamaged()) return this.closeDamaged();
    this.turn.begin();
    this.turn.enter(run);
    try {
      Reflect.apply(callback, undefined, all);
    } finally {
      this.#goOn();
    }
  }

  #send() {
    if (this.#isClosing) return;
    this.sendAnswers();
    this.outbox.flush();
  }

  /** Sends the responses of runs that continue. */
  sendAnswers() {
    for (const run of this.#answered) {
      try {
        run.sendAnswer();
      } catch (error) {
        run.fail(error);
      }
    }
    this.#answered.length = 0;
  }

  /** Handles a frame; an invalid frame must not block those behind it. */
  #takeSafely(cursor) {
    try {
      return this.#take(cursor);
    } catch (error) {
      log(this, ERROR, `invalid frame from the gateway: ${describe(error).stack}`);
      return false;
    }
  }

  /** Handles a frame. Returns true if it may resume promises. */
  #take(cursor) {
    const type = cursor.u8();
    const run = cursor.u32();
    switch (type) {
      case RUN:
        return this.#run(run, cursor);
      case DONE:
        return this.#done(cursor);
      case STATE:
        this.cells.receive(run, cursor.u8(), cursor.u64(), cursor.text());
        return false;
      case INSTANCE:
        this.#instances.set(run, cursor.text());
        return false;
      case CANCEL:
        this.runs.get(run)?.cancel(cursor.u8() === GIVE_UP);
        return false;
      case LOAD:
        this.#load(run, cursor.text(), cursor.text(), cursor.text(), cursor.text());
        return true;
      case FORGET:
        this.#forget(cursor.u8(), cursor.u32());
        return false;
      case PING:
        this.outbox.begin(PONG, run).end();
        return false;
      default:
        throw new Error(`the gateway sent a frame of type ${type}`);
    }
  }

  async #load(number, name, folder, descriptor, code) {
    this.#loading++;
    try {
      const described = JSON.parse(descriptor);
      const program = new Program(name, folder, described);
      if (described.settings?.stuck > 0) this.#watched[SPAN] = described.settings.stuck;
      await program.start(code);
      try {
        checkShared();
      } catch (error) {
        if (isDamaged()) throw error;
        // A run may have made the change. It is undone, unless that is not possible.
        log(this, ERROR, describe(error).message);
        checkShared();
      }
      lockShared();
      this.programs.set(number, program);
      this.outbox.begin(READY, number).end();
    } catch (error) {
      // If code of runs was executed, it may be the cause: the gateway loads the program in another worker.
      if (isDamaged() && this.#watched[COUNT] !== 0) return this.closeDamaged();
      const { message, stack } = describe(error);
      this.outbox.begin(BROKEN, number).text(message).text(stack).end();
    } finally {
      this.#loading--;
    }
  }

  #forget(what, id) {
    if (what === 0) this.cells.delete(id);
    else if (what === 1) this.#instances.delete(id);
    else this.programs.delete(id);
  }

  #run(id, cursor) {
    const number = cursor.u32();
    const service = this.programs.get(number)?.services[cursor.u16()];
    const index = cursor.u16();
    const handler = service?.handlers[index];
    if (handler === undefined) return this.#refuse(id, service);
    const flags = cursor.u8();
    const method = cursor.u8();
    const run = new Run(this, id, /** @type {import("./program.js").Service} */ (service), method);
    run.program = number;
    run.handler = index;
    this.runs.add(run);
    this.turn.enter(run);
    try {
      const path = cursor.text();
      const parameters = cursor.text();
      const headers = cursor.text();
      const captures = this.#captures(cursor.u32());
      const planned = this.#open(run, handler, flags, cursor);
      if (planned !== undefined) return this.#initialise(run, planned, captures);
      const kind = cursor.u8();
      const query = new Query(method, path, parameters, headers, kind, cursor.content(kind));
      const result = handler.run(query, run.response, run, captures);
      if (typeof result?.then === "function") {
        run.follow(result);
        return true;
      }
      run.finish();
    } catch (error) {
      run.fail(error);
    }
    return false;
  }

  #refuse(id, service) {
    const what = service === undefined ? "the program is not loaded here" : "the program has no such handler";
    new Run(this, id, service, 0).fail(new Error(what));
    return false;
  }

  /** Opens the cells of a run. Returns the cells' indices in the service if the run initialises them. */
  #open(run, handler, flags, cursor) {
    const count = cursor.u8();
    if (count === 0) return undefined;
    const version = cursor.u64();
    const durable = cursor.u64();
    const isWriter = (flags & (WRITER | INITIALISE)) !== 0;
    const cells = [];
    for (let i = 0; i < count; i++) cells.push(this.cells.find(cursor.u32(), isWriter ? Infinity : version, durable));
    if ((flags & INITIALISE) === 0) {
      run.open(handler, cells, version, isWriter);
      return undefined;
    }
    const planned = cells.map(() => cursor.u16());
    run.open({ names: planned.map((index) => run.service.cells[index] ?? `cell ${index}`) }, cells, version, true);
    return planned;
  }

  #initialise(run, planned, captures) {
    planned.forEach((index, slot) => run.initial(slot, () => run.service.initial(index, run.names[slot], captures)));
    run.finish();
    return false;
  }

  #captures(instance) {
    if (instance === 0) return undefined;
    let captures = this.#instances.get(instance);
    if (typeof captures === "string") {
      captures = restored(captures);
      this.#instances.set(instance, captures);
    }
    return captures;
  }

  #done(cursor) {
    const call = cursor.u32();
    const waiting = this.waiting.get(call);
    if (waiting === undefined) return false;
    this.waiting.delete(call);
    const { run, site, isDeclaration, isUnread, resolve, reject } = waiting;
    if (run.ended) return false;
    const outcome = cursor.u8();
    const status = cursor.u16();
    const headers = cursor.text();
    const message = cursor.text();
    const kind = cursor.u8();
    const content = cursor.content(kind);
    this.turn.enter(run);
    try {
      if (outcome === PASSED) resolve(PASS);
      else if (outcome === OK) resolve(isUnread ? unread(kind, content) : read(kind, content));
      else if (outcome === REFUSED && isDeclaration) throw new DeclarationError(message, status);
      else throw failure(message, status, headers, kind, content);
    } catch (error) {
      reject(placed(error, site));
    }
    return true;
  }
}

/** Converts a resource's response. A response with a JSON media type that is not JSON fails the call. */
function read(kind, content) {
  if (kind !== JSON_TEXT && kind !== JSON_ASCII) return content;
  try {
    return JSON.parse(content);
  } catch (error) {
    const message = `the answer is not the JSON that its type claims: ${error.message}`;
    throw new ResourceError(message, BROKEN_ANSWER, {}, content);
  }
}

/** Converts a response that no code reads. JSON remains text: the gateway has validated it. */
function unread(kind, content) {
  return kind === JSON_TEXT || kind === JSON_ASCII ? new Verbatim(content) : content;
}

/**
 * Returns the error of a call. A body with a JSON media type that is not JSON remains text, since the call
 * has failed anyway.
 */
function failure(message, status, headers, kind, content) {
  let body = content;
  try {
    body = read(kind, content);
  } catch {}
  return new ResourceError(message, status, headers === "" ? {} : JSON.parse(headers), body);
}

/** Adds the call site to an error, for a FAIL frame if the error is not caught. */
function placed(error, site) {
  error[SITE] = site;
  return error;
}

function engine() {
  const { bun, deno, node } = process.versions;
  if (bun) return `bun ${bun}`;
  return deno ? `deno ${deno}` : `node ${node}`;
}

const [main, watchdog, number] = process.argv.slice(2).map(Number);
globalThis.ResourceError = ResourceError;
const end = process.exit.bind(process);
const worker = new Worker(watch(watchdog, number));
takeConsole(worker);
guard(worker);
lockObject();
worker.connect(main, number, engine(), () => end(0));
