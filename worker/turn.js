// A turn of the event loop: attributes running code to a run, measures its time, and sends the results at the
// end.
//
// The watchdog and the console need to know the running run, and JavaScript does not report which promise is
// resumed. Frames are therefore dispatched one at a time: a frame that resumes a run is followed by all
// microtasks, and only then by the next frame. A tick that is requested in a microtask runs when no microtask
// is left, in Node, Bun and Deno.

import process from "node:process";

import { checkShared, isDamaged } from "./intrinsics.js";
import { COUNT, RUN } from "./watchdog.js";

const { nextTick } = process;
const now = performance.now.bind(performance);
const settled = Promise.resolve();

export class Turn {
  /** @type {import("./run.js").Run | undefined} the run whose code is executing */
  current;
  /** Whether frames are being dispatched, so that all output is sent at the end. */
  active = false;
  /** @type {import("./run.js").Run | undefined} the run that executed in the last turn, if there was exactly one */
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

  /** Records that a run's code begins to execute. */
  enter(run) {
    if (this.current !== undefined) this.leave();
    this.current = run;
    this.#others ||= this.sole !== undefined && this.sole !== run;
    this.sole = this.#others ? undefined : run;
    this.#watched[RUN] = run.id;
    this.#watched[COUNT]++;
  }

  /** Records that it has stopped. The time since the last reading of the clock is charged to it. */
  leave() {
    const run = this.current;
    if (run === undefined) return;
    const time = now();
    run.time += time - this.#since;
    this.#since = time;
    this.current = undefined;
    this.#watched[RUN] = 0;
    try {
      checkShared();
    } catch (error) {
      run.fail(error);
      if (isDamaged()) run.worker.closeDamaged(run);
    }
  }

  end() {
    this.leave();
    this.active = false;
  }

  /** Returns a function that calls `next` after all pending microtasks. */
  static afterAll(next) {
    const tick = () => nextTick(next);
    return () => {
      settled.then(tick);
    };
  }
}
