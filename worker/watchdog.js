// Sees a handler that doesn't give the event loop back, and tells the gateway, which can end the process.
//
// A thread of its own looks every so often at memory that both share: if the same run was there all the time, it is
// stuck. It has a connection of its own, since the worker's can't be written to then; and when the gateway is gone it
// ends a worker that is too busy to notice.

import process from "node:process";
import { Worker as Thread, isMainThread, workerData } from "node:worker_threads";

import { inherited } from "./connection.js";
import { HELLO, Outbox, STUCK } from "./frames.js";

/** What both share: the run whose code runs (0: none), how often that changed, after how many ms it is stuck. */
export const RUN = 0;
export const COUNT = 1;
export const SPAN = 2;
const WORDS = 3;

/** Unless a program says otherwise. */
const USUAL = 100;
/** Milliseconds that a worker has to end by itself. */
const GRACE = 500;

/** Starts the thread; gives what it looks at. */
export function watch(fd, number) {
  const watched = new Int32Array(new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT));
  watched[SPAN] = USUAL;
  const thread = new Thread(new URL(import.meta.url), { workerData: { fd, number, watched } });
  thread.unref();
  return watched;
}

/** @param {{ fd: number, number: number, watched: Int32Array }} given */
function look({ fd, number, watched }) {
  const socket = inherited(fd);
  const outbox = new Outbox(socket, () => {});
  outbox.begin(HELLO, 0).u32(number).text("watchdog").end();
  outbox.flush();
  // Unless it is busy the worker ends by itself, as it also sees that the gateway is gone.
  const end = () => setTimeout(() => process.kill(process.pid, "SIGKILL"), GRACE);
  socket.on("close", end);
  socket.on("error", () => {});
  socket.resume();
  let count = 0;
  let since = 0;
  let told = 0;
  const tick = () => {
    const run = Atomics.load(watched, RUN);
    const span = Atomics.load(watched, SPAN);
    const now = performance.now();
    if (run === 0 || Atomics.load(watched, COUNT) !== count) {
      count = Atomics.load(watched, COUNT);
      since = told = now;
    } else if (now - told >= span) {
      told = now;
      outbox.begin(STUCK, run >>> 0).u32(Math.round(now - since)).end();
      outbox.flush();
    }
    setTimeout(tick, span);
  };
  tick();
}

if (!isMainThread) look(workerData);
