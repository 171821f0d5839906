// The console of handlers: its output goes to the gateway's log, together with the run that wrote it.

import { format } from "node:util";

import { LOG } from "./frames.js";
import { free } from "./views.js";

const LEVELS = { debug: 0, trace: 0, log: 1, info: 1, dir: 1, table: 1, group: 1, warn: 2, error: 3 };
export const ERROR = 3;

/** @param {import("./worker.js").Worker} worker */
export function takeConsole(worker) {
  for (const [name, level] of Object.entries(LEVELS)) {
    // A view is printed as its run sees it, rather than as the underlying raw tree.
    console[name] = (...all) => log(worker, level, format(...all.map(free)));
  }
  console.assert = (holds, ...all) => {
    if (!holds) console.error("Assertion failed", ...all);
  };
}

/** @param {import("./worker.js").Worker} worker */
export function log(worker, level, text, run = worker.turn.current) {
  worker.outbox.begin(LOG, run?.id ?? 0).u8(level).text(text).end();
}
