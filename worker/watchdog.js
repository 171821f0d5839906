// Sees a handler that doesn't give the event loop back, and tells the gateway, which can end the process.
//
// A thread of its own looks every so often at memory that both share: if the same run was there all the time, it is
// stuck. It has a connection of its own, since the worker's can't be written to then.

import { connect } from "node:net";
import { Worker as Thread, isMainThread, workerData } from "node:worker_threads";

import { HELLO, Outbox, STUCK } from "./frames.js";
import { COUNT, RUN } from "./turn.js";

const INTERVAL = 100;

/** Starts the thread; gives what it looks at. */
export function watch(path, number) {
  const watched = new Int32Array(new SharedArrayBuffer(8));
  const thread = new Thread(new URL(import.meta.url), { workerData: { path, number, watched } });
  thread.unref();
  return watched;
}

function look({ path, number, watched }) {
  const socket = connect({ path });
  const outbox = new Outbox(socket, () => {});
  outbox.begin(HELLO, 0).u32(number).text("watchdog").end();
  outbox.flush();
  let count = 0;
  let since = 0;
  setInterval(() => {
    const run = Atomics.load(watched, RUN);
    const now = performance.now();
    if (run === 0 || Atomics.load(watched, COUNT) !== count) {
      count = Atomics.load(watched, COUNT);
      since = now;
    } else if (now - since >= INTERVAL) {
      outbox.begin(STUCK, run >>> 0).u32(Math.round(now - since)).end();
      outbox.flush();
    }
  }, INTERVAL);
  socket.on("error", () => {});
}

if (!isMainThread) look(workerData);
