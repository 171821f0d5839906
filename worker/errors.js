// Conversion of a run's error for the gateway: its kind, position, and message.

import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

import { AnswerError, BodyError } from "./query.js";
import { ResourceError } from "./resource.js";
import { StateError } from "./values.js";

/** The folder of the worker's own files, in stacks. */
const OWN = fileURLToPath(new URL(".", import.meta.url));
const THREW = 0;
const RESOURCE = 1;
const STATE = 2;
const ANSWER = 3;
const BODY = 5;
const DECLARATION = 6;

/** The maximum length of an error's message; the rest is dropped, as in the gateway. */
const MESSAGE = 8 << 10;
/** The maximum length of a stack. The beginning of a longer one, which repeats the message, is dropped. */
const STACK = 16 << 10;

/** The key under which an error of the worker contains its call site. */
export const SITE = Symbol("site");

/** The declaration of a nested resource was refused. */
export class DeclarationError extends Error {
  /**
   * @param {string} message
   * @param {number} status the status of the response if the error is not caught
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}
Object.defineProperty(DeclarationError.prototype, "name", { value: "DeclarationError", configurable: true, writable: true });

/**
 * Returns the fields of a FAIL frame. Any value can be thrown, and its members may throw as well.
 * @param {unknown} error
 */
export function describe(error) {
  try {
    return described(error);
  } catch {
    return { kind: THREW, site: 0, status: 0, message: "the thrown value can't be inspected", stack: "" };
  }
}

function described(error) {
  if (!(error instanceof Error)) {
    const message = `thrown: ${inspect(error, { depth: 2 })}`.slice(0, MESSAGE);
    return { kind: THREW, site: 0, status: 0, message, stack: "" };
  }
  const kind = kindOf(error);
  return {
    kind,
    site: error[SITE] >>> 0,
    status: kind === RESOURCE || kind === DECLARATION ? /** @type {ResourceError} */ (error).status & 0xffff : kind === BODY ? 400 : 0,
    message: String(kind === THREW ? error : error.message).slice(0, MESSAGE),
    stack: stackOf(error),
  };
}

/**
 * Returns the stack without the worker's own lines, and with positions as `NAME:line:column`: newer versions
 * of V8 add the eval.
 */
export function stackOf(error) {
  const lines = String(error.stack ?? "").split("\n");
  return lines.filter((line) => !line.includes(OWN)).join("\n").replaceAll(", <anonymous>:", ":").slice(-STACK);
}

function kindOf(error) {
  if (error instanceof ResourceError) return RESOURCE;
  if (error instanceof StateError) return STATE;
  if (error instanceof DeclarationError) return DECLARATION;
  if (error instanceof AnswerError) return ANSWER;
  return error instanceof BodyError ? BODY : THREW;
}

/**
 * Returns the reason why a value cannot be converted to JSON, and the position: a circle, a BigInt, or a
 * member that throws.
 * @param {unknown} value
 * @param {Error} error that JSON.stringify threw
 */
export function unspeakable(value, error) {
  const found = find(value, "", []);
  if (found === undefined) return new AnswerError(`the argument of \`respond\` can't be JSON: ${error.message}`);
  const place = found.path === "" ? "" : `, at \`${found.path.replace(/^\./, "")}\``;
  return new AnswerError(`the argument of \`respond\` can't be JSON: ${found.what}${place} (S rule 13)`);
}

function find(value, path, above) {
  if (typeof value === "bigint") return { what: "a BigInt", path };
  if (typeof value === "function" || typeof value === "symbol") {
    return above.length > 0 ? undefined : { what: `a ${typeof value}`, path };
  }
  if (typeof value !== "object" || value === null) return undefined;
  if (above.includes(value)) return { what: "a circle (it contains itself)", path };
  above.push(value);
  for (const key of Object.keys(value)) {
    const found = find(value[key], Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`, above);
    if (found) return found;
  }
  above.pop();
  return undefined;
}
