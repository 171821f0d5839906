// Protection of the process from handlers, which share it: they must not end it, crash it by an unhandled
// error, or run code in timers that cannot be attributed to a run.

import process from "node:process";

import { describe } from "./errors.js";
import { ERROR, log } from "./log.js";

/** @param {import("./worker.js").Worker} worker */
export function guard(worker) {
  for (const name of ["exit", "abort", "kill", "chdir"]) {
    process[name] = () => {
      throw new Error(`process.${name} can't be called by a handler`);
    };
  }
  for (const name of ["setTimeout", "setInterval", "setImmediate"]) follow(worker, name);
  process.on("unhandledRejection", (error) => dropped(worker, error, "unhandled rejection of a promise"));
  process.on("uncaughtException", (error) => dropped(worker, error, "uncaught error"));
}

/** Attributes the callback of a timer to the run that set it. */
function follow(worker, name) {
  const timer = globalThis[name];
  const own = (callback, ...rest) => {
    const run = worker.turn.current;
    if (run === undefined || typeof callback !== "function") return timer(callback, ...rest);
    return timer((...all) => worker.callBack(run, callback, all), ...rest);
  };
  globalThis[name] = Object.defineProperties(own, Object.getOwnPropertyDescriptors(timer));
}

/** Fails the run that caused the error, if it is known and still active. */
function dropped(worker, error, what) {
  const run = worker.turn.current ?? worker.turn.sole;
  const { message, stack } = describe(error);
  log(worker, ERROR, `${what}: ${stack || message}`, run);
  run?.fail(error);
}
