// What handlers must not do to the process that they share: end it, crash it by an error that nobody waits for, or go
// on behind a timer without anybody knowing whose code that is.

import process from "node:process";

import { describe } from "./errors.js";
import { ERROR, log } from "./log.js";

/** @param {import("./worker.js").Worker} worker */
export function guard(worker) {
  for (const name of ["exit", "abort", "kill", "chdir"]) {
    process[name] = () => {
      throw new Error(`process.${name} is the gateway's to call, and not a handler's`);
    };
  }
  for (const name of ["setTimeout", "setInterval", "setImmediate"]) follow(worker, name);
  process.on("unhandledRejection", (error) => dropped(worker, error, "a promise that nobody waits for was rejected"));
  process.on("uncaughtException", (error) => dropped(worker, error, "an error that nobody could catch"));
}

/** What a timer calls is the code of the run that set it. */
function follow(worker, name) {
  const timer = globalThis[name];
  const own = (callback, ...rest) => {
    const run = worker.turn.current;
    if (run === undefined || typeof callback !== "function") return timer(callback, ...rest);
    return timer((...all) => worker.callBack(run, callback, all), ...rest);
  };
  globalThis[name] = Object.defineProperties(own, Object.getOwnPropertyDescriptors(timer));
}

/** The run that did it fails, if it is known and still there. */
function dropped(worker, error, what) {
  const run = worker.turn.current ?? worker.turn.sole;
  const { message, stack } = describe(error);
  log(worker, ERROR, `${what}: ${stack || message}`, run);
  run?.fail(error);
}
