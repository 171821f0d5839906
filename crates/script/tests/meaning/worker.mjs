// Runs handlers like a worker, with its `par` and `pfor`, but with simulated resources and a simulated clock.
//
// Reads one run per line from stdin, as JSON `{code, handler, seed, query, cells, captured}`, and answers
// each with a line: the responses, the unsafe calls by resource, the cells, and an error if one was thrown.

import { createInterface } from "node:readline";

import { par, pfor } from "../../../../worker/par.js";

const METHODS = ["get", "head", "post", "put", "patch", "delete", "options"];
const AT_ONCE = 3;

/** Returns a seeded random number generator. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A clock that advances when no other work is pending. */
class Clock {
  constructor(seed) {
    this.random = random(seed);
    this.events = [];
    this.now = 0;
  }

  after() {
    return new Promise((resolve) => this.events.push({ at: this.now + this.random(), resolve }));
  }

  tick() {
    this.events.sort((a, b) => a.at - b.at);
    const event = this.events.shift();
    if (event === undefined) return false;
    this.now = event.at;
    event.resolve();
    return true;
  }
}

class Run {
  constructor({ seed, cells }, names) {
    this.clock = new Clock(seed);
    this.cells = cells;
    this.names = names;
    this.calls = {};
    this.answers = [];
    this.begun = [];
  }

  initial(slot, value) {
    const name = this.names[slot];
    if (this.cells[name] === undefined) this.cells[name] = value();
  }

  async call(_site, resource, method, values) {
    const name = resource.filter((piece) => typeof piece === "string").join("@");
    await this.clock.after();
    if (METHODS[method] !== "get") (this.calls[name] ??= []).push([METHODS[method], ...values]);
    const calls = this.calls[name] ?? [];
    const result = (name.length + calls.length * 3 + values.reduce((sum, value) => sum * 5 + Number(value), 1)) % 11;
    await this.clock.after();
    return result;
  }

  unread(...call) {
    return this.call(...call);
  }

  async pass(...call) {
    this.respond(await this.call(...call));
  }

  respond(value) {
    this.answers.push(structuredClone(value));
  }

  answer(status, headers, body) {
    this.answers.push({ status, headers, body });
  }

  commit() {}

  async declare(_site, resource, path, captured) {
    await this.clock.after();
    this.answers.push({ declared: resource, path, captured: JSON.parse(JSON.stringify(captured)) });
  }

  par(...units) {
    return par(units);
  }

  pfor(list, turn) {
    return pfor(list, turn, AT_ONCE);
  }
}

async function load(code) {
  const handlers = [];
  const initials = [];
  await (0, eval)(code)({
    service: (_name, body) => body(),
    handler: (number, handler) => (handlers[number] = handler),
    initial: (number, value) => (initials[number] = value),
    resource: (pieces) => pieces,
    import: (name) => import(name),
  });
  return { handlers, initials };
}

async function run(asked) {
  const { handlers, initials } = await load(asked.code);
  for (const [number, initial] of initials.entries()) {
    if (initial) asked.cells[asked.names[number]] ??= initial(asked.captured);
  }
  const run = new Run(asked, asked.names);
  let over = false;
  const result = { error: null };
  const ended = (async () => handlers[asked.handler](asked.query, { headers: {} }, run, asked.captured))();
  ended.catch((error) => (result.error = String(error))).then(() => (over = true));
  while (!over) {
    await new Promise(setImmediate);
    if (!over && !run.clock.tick()) {
      await new Promise(setImmediate);
      if (!over) throw new Error("waits forever");
    }
  }
  return { ...result, answers: run.answers, calls: run.calls, cells: run.cells };
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await run(JSON.parse(line)).catch((error) => ({ broken: String(error.stack) }));
  process.stdout.write(`${JSON.stringify(answer, (_, value) => (value === undefined ? "undefined" : value))}\n`);
}
