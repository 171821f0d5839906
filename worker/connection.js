// The sockets that a worker is given when it is started: their other ends are the gateway's, and nobody else's.

import { Socket, connect } from "node:net";
import process from "node:process";

/**
 * @param {number} fd its number
 * @param {import("node:net").OnReadOpts} [onread]
 */
export function inherited(fd, onread) {
  // Bun has no sockets that are there already, but connects to them.
  if (process.versions.bun) return connect(/** @type {any} */ ({ fd }));
  return new Socket(/** @type {any} */ ({ fd, readable: true, writable: true, onread }));
}
