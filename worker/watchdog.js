// The watchdog: detects a handler that blocks the event loop, and reports it to the gateway, which can end
// the process.
//
// A separate thread periodically checks shared memory: a run that was executing during the whole interval is
// stuck. The thread has a connection of its own, since a blocked worker cannot write to its connection. If
// the gateway ends, the thread ends a worker that is too busy to notice.

import process from "node:process";
import { Worker as Thread, isMainThread, workerData } from "node:worker_threads";

import { inherited } from "./connection.js";
import { HELLO, Outbox, STUCK } from "./frames.js";

/**
 * The layout of the shared memory: the executing run (0: none), the number of switches, and the interval in
 * ms after which a run is stuck.
 */
export const RUN = 0;
export const COUNT = 1;
export const SPAN = 2;
const WORDS = 3;

/** The default interval in milliseconds. */
const USUAL = 100;
/** The time in milliseconds that a worker has to end by itself. */
const GRACE = 500;

/** Starts the thread; returns the memory shared with it. */
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
  // Unless it is busy, the worker ends by itself, since it also notices the end of the gateway.
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
