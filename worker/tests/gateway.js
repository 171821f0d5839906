// A gateway for tests: starts a real worker, sends frames, and records or answers the frames that it
// receives.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import * as F from "../frames.js";

const main = fileURLToPath(new URL("../worker.js", import.meta.url));
/** The command of the engine that runs the worker, for example `bun` or `deno run -A`. */
export const ENGINE = (process.env.WORKER_ENGINE ?? process.execPath).split(" ");
/** The numbers of methods in frames. */
export const METHODS = { GET: 0, HEAD: 1, POST: 2, PUT: 3, PATCH: 4, DELETE: 5, OPTIONS: 6 };

/** Starts a worker that ends with the test. */
export async function gateway(test, options = {}) {
  const gateway = new Gateway(options);
  test.after(() => gateway.close());
  await gateway.start();
  return gateway;
}

export class Gateway {
  /** Frames that are not responses to a run or load. */
  logs = [];
  stuck = [];
  /** Reports of damage by code of a run that has ended. */
  damages = [];
  removed = [];
  #runs = new Map();
  #loads = new Map();
  #pings = new Map();
  #numbers = 0;
  #calls;
  #cut;
  #sockets = [];

  /** @param {{calls?: Function, cut?: number}} options `calls` answers a call; `cut` is the size of the pieces that are sent */
  constructor({ calls = () => ({}), cut } = {}) {
    this.#calls = calls;
    this.#cut = cut;
  }

  async start() {
    this.folder = mkdtempSync(join(tmpdir(), "worker-"));
    const stdio = /** @type {const} */ (["ignore", "inherit", "inherit", "pipe", "pipe"]);
    this.process = spawn(ENGINE[0], [...ENGINE.slice(1), main, "3", "4", "7"], { stdio });
    this.exited = once(this.process, "exit");
    this.engine = await new Promise((resolve) => {
      for (const socket of this.process.stdio.slice(3)) this.#accept(socket, resolve);
    });
  }

  /** Without `kill`, the worker has to detect the end of its gateway. */
  async close({ kill = true } = {}) {
    for (const socket of this.#sockets) socket.destroy();
    if (kill) this.process.kill("SIGKILL");
    await this.exited;
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Loads emitted code with this descriptor. */
  load(code, descriptor, { name = "test.sjs", folder = this.folder } = {}) {
    const program = ++this.#numbers;
    this.out.begin(F.LOAD, program).text(name).text(folder).text(JSON.stringify(descriptor)).text(code).end();
    this.#send();
    return new Promise((resolve, reject) => this.#loads.set(program, { resolve: () => resolve(program), reject }));
  }

  /** Loads a program of one service: handlers as source texts, each with the names of its cells. */
  service(handlers, { cells = [], initials = "", resources = [], helpers = "", settings = {}, ...rest } = {}) {
    const texts = handlers.map(({ code }, index) => `$s.handler(${index}, ${code});`).join("\n");
    const code = `(async ($s) => {"use strict"; $s.service("test", () => {${helpers}\n${texts}\n${initials}})})`;
    const described = { name: "test", cells, resources, handlers: handlers.map(({ cells = [] }) => ({ cells })) };
    return this.load(code, { services: [described], settings }, rest);
  }

  /**
   * Starts a run. `ended` resolves to the content of END or FAIL, with the run's other frames.
   * @returns {{id: number, ended: Promise<any>, frames: any[]}}
   */
  start_run(program, handler = 0, options = {}) {
    const { method = 0, path = "/", query, headers, instance = 0, cells, version = 0, durable = 0, writer = false } = options;
    const id = ++this.#numbers;
    const { initialise, body = { kind: F.NONE } } = options;
    const flags = (writer ? 1 : 0) | (initialise ? 2 : 0);
    const json = (value) => (value === undefined ? "" : JSON.stringify(value));
    const frame = this.out.begin(F.RUN, id).u32(program).u16(0).u16(handler).u8(flags).u8(method);
    frame.text(path).text(json(query)).text(json(headers)).u32(instance).u8(cells?.length ?? 0);
    if (cells?.length) {
      u64(u64(frame, version), durable);
      for (const cell of cells) frame.u32(cell);
      for (const index of initialise ?? []) frame.u16(index);
    }
    if (!initialise) frame.body(body.kind, body.content);
    frame.end();
    const run = { id, frames: [] };
    run.ended = new Promise((resolve) => (run.end = resolve));
    this.#runs.set(id, run);
    this.#send();
    return run;
  }

  /** Runs a handler to its end. */
  run(program, handler, options) {
    return this.start_run(program, handler, options).ended;
  }

  state(cell, version, kind, value) {
    u64(this.out.begin(F.STATE, cell).u8(kind), version).text(value === undefined ? "" : JSON.stringify(value)).end();
    this.#send();
  }

  instance(id, text) {
    this.out.begin(F.INSTANCE, id).text(text).end();
    this.#send();
  }

  cancel(run, what = 0) {
    this.out.begin(F.CANCEL, run).u8(what).end();
    this.#send();
  }

  forget(what, id) {
    this.out.begin(F.FORGET, 0).u8(what).u32(id).end();
    this.#send();
  }

  /** Resolves when the worker has processed all frames that were sent before. */
  ping() {
    const number = ++this.#numbers;
    this.out.begin(F.PING, number).end();
    this.#send();
    return new Promise((resolve) => this.#pings.set(number, resolve));
  }

  /** Answers a call. */
  done(run, call, { outcome = 0, status = 200, headers = "", message = "", kind = F.NONE, content } = {}) {
    this.out.begin(F.DONE, run).u32(call).u8(outcome).u16(status).text(headers).text(message).body(kind, content).end();
    this.#send();
  }

  /** Sends all frames of a function together. */
  together(send) {
    this.held = true;
    send();
    this.held = false;
    this.#send();
  }

  #send() {
    if (!this.held) this.out.flush();
  }

  #accept(socket, hello) {
    this.#sockets.push(socket);
    const inbox = new F.Inbox();
    const cursor = new F.Cursor();
    socket.on("data", (chunk) => {
      inbox.push(chunk, chunk.length);
      while (inbox.next(cursor)) this.#take(cursor, socket, hello);
    });
    socket.on("error", () => {});
  }

  #take(cursor, socket, hello) {
    const frame = read(cursor);
    const { type, run } = frame;
    if (type === F.HELLO && frame.engine !== "watchdog") {
      this.socket = socket;
      this.out = new F.Outbox(this.#cut ? { write: (bytes) => this.#writeCut(bytes), writableLength: 1 } : socket, () => {});
      this.hello = frame;
      hello(frame.engine);
    } else if (type === F.READY) {
      this.#loads.get(run).resolve();
    } else if (type === F.BROKEN) {
      this.#loads.get(run).reject(Object.assign(new Error(frame.message), frame));
    } else if (type === F.PONG) {
      this.#pings.get(run)();
    } else if (type === F.LOG) {
      this.logs.push(frame);
    } else if (type === F.DAMAGED) {
      this.damages.push(frame);
    } else if (type === F.STUCK) {
      this.stuck.push(frame);
      this.onstuck?.(frame);
    } else if (type !== F.HELLO) {
      this.#ofRun(frame);
    }
  }

  #ofRun(frame) {
    const run = this.#runs.get(frame.run);
    run.frames.push(frame);
    if (frame.type === F.CALL || frame.type === F.DECLARE) {
      const answer = this.#calls(frame, this);
      if (answer) Promise.resolve(answer).then((answer) => this.done(frame.run, frame.call, answer));
    } else if (frame.type === F.END || frame.type === F.FAIL) {
      this.#runs.delete(frame.run);
      run.end({ ...frame, frames: run.frames });
    }
  }

  #writeCut(bytes) {
    for (let at = 0; at < bytes.length; at += this.#cut) this.socket.write(bytes.subarray(at, at + this.#cut));
  }
}

function u64(frame, value) {
  return frame.u32(value % 2 ** 32).u32(Math.floor(value / 2 ** 32));
}

/** Parses a frame from a worker. */
function read(cursor) {
  const type = cursor.u8();
  const run = cursor.u32();
  const frame = { type, run };
  const fields = FIELDS[type];
  if (fields) fields(cursor, frame);
  if (cursor.at !== cursor.end) throw new Error(`a frame of type ${type} has ${cursor.end - cursor.at} extra bytes`);
  return frame;
}

function answer(cursor, frame) {
  frame.status = cursor.u16();
  const headers = cursor.text();
  frame.headers = headers && JSON.parse(headers);
  frame.kind = cursor.u8();
  frame.body = cursor.content(frame.kind);
}

const FIELDS = {
  [F.HELLO]: (c, f) => Object.assign(f, { worker: c.u32(), engine: c.text() }),
  [F.BROKEN]: (c, f) => Object.assign(f, { message: c.text(), stack: c.text() }),
  [F.CALL]: (c, f) => {
    Object.assign(f, { call: c.u32(), site: c.u32(), flags: c.u8(), method: c.u8(), url: c.text(), query: c.text(), kind: c.u8() });
    f.body = c.content(f.kind);
  },
  [F.ANSWER]: answer,
  [F.COMMIT]: (c, f) => (f.changes = c.text()),
  [F.DECLARE]: (c, f) =>
    Object.assign(f, { call: c.u32(), site: c.u32(), resource: c.u16(), path: c.text(), captures: c.text(), initials: c.text() }),
  [F.END]: (c, f) => {
    f.flags = c.u8();
    if (f.flags & 1) answer(c, f);
    if (f.flags & 2) f.changes = c.text();
    f.time = c.u32();
  },
  [F.FAIL]: (c, f) =>
    Object.assign(f, { kind: c.u8(), site: c.u32(), status: c.u16(), message: c.text(), stack: c.text() }),
  [F.TWICE]: (c, f) => (f.stack = c.text()),
  [F.LOG]: (c, f) => Object.assign(f, { level: c.u8(), text: c.text() }),
  [F.DAMAGED]: (c, f) => (f.handler = c.u16()),
  [F.STUCK]: (c, f) => (f.ms = c.u32()),
};
