// A turn of the event loop: whose code runs at this moment, for how long it has, and when what was made is sent.
//
// The watchdog and the console must know the run that is under way, and JavaScript doesn't say whose promise went on.
// So frames are given out one at a time: one that lets a run go on is followed by all microtasks, and only then by the
// next frame. A tick that a microtask asks for comes when no microtask is left, in Node, Bun and Deno.

import process from "node:process";

import { COUNT, RUN } from "./watchdog.js";

const { nextTick } = process;
const now = performance.now.bind(performance);
const settled = Promise.resolve();

export class Turn {
  /** @type {import("./run.js").Run | undefined} whose code runs */
  current;
  /** Whether frames are given out, so that all is sent at the end. */
  active = false;
  /** @type {import("./run.js").Run | undefined} the one whose code ran in the last turn, if it was only one */
  sole;
  #since = 0;
  #others = false;
  #watched;

  /** @param {Int32Array} watched shared with the watchdog */
  constructor(watched) {
    this.#watched = watched;
  }

  begin() {
    this.active = true;
    this.sole = undefined;
    this.#others = false;
    this.#since = now();
  }

  /** From here on it is a run's code. */
  enter(run) {
    if (this.current !== undefined) this.leave();
    this.current = run;
    this.#others ||= this.sole !== undefined && this.sole !== run;
    this.sole = this.#others ? undefined : run;
    this.#watched[RUN] = run.id;
    this.#watched[COUNT]++;
  }

  /** Now it isn't any more. What was done since the last look at the clock was done for it. */
  leave() {
    const run = this.current;
    if (run === undefined) return;
    const time = now();
    run.time += time - this.#since;
    this.#since = time;
    this.current = undefined;
    this.#watched[RUN] = 0;
  }

  end() {
    this.leave();
    this.active = false;
  }

  /** Calls a function when all that can go on by itself has done so. */
  static afterAll(next) {
    const tick = () => nextTick(next);
    return () => {
      settled.then(tick);
    };
  }
}
