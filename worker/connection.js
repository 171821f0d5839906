// The sockets that a worker inherits at its start. Their other ends belong to the gateway.

import { Socket, connect } from "node:net";
import process from "node:process";

/**
 * @param {number} fd the socket's file descriptor
 * @param {import("node:net").OnReadOpts} [onread]
 */
export function inherited(fd, onread) {
  // Bun cannot wrap an existing socket in `Socket`, but `connect` accepts its file descriptor.
  if (process.versions.bun) return connect(/** @type {any} */ ({ fd }));
  return new Socket(/** @type {any} */ ({ fd, readable: true, writable: true, onread }));
}
