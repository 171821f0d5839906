// How a run's error is told to the gateway: which kind, where, and in whose words.

import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

import { AnswerError, BodyError } from "./query.js";
import { ResourceError } from "./resource.js";
import { StateError } from "./values.js";

/** The worker's own files, in stacks. */
const OWN = fileURLToPath(new URL(".", import.meta.url));
const THREW = 0;
const RESOURCE = 1;
const STATE = 2;
const ANSWER = 3;
const BODY = 5;
const DECLARATION = 6;

/** Under this an error of the worker's own has its site. */
export const SITE = Symbol("site");

/** A nested resource was not made. */
export class DeclarationError extends Error {
  /**
   * @param {string} message
   * @param {number} status that the answer has if nobody catches it
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}
Object.defineProperty(DeclarationError.prototype, "name", { value: "DeclarationError", configurable: true, writable: true });

/**
 * The fields of a FAIL frame. What was thrown may be anything, and its members may throw too.
 * @param {unknown} error
 */
export function describe(error) {
  try {
    return described(error);
  } catch {
    return { kind: THREW, site: 0, status: 0, message: "something was thrown that can't be looked at", stack: "" };
  }
}

function described(error) {
  if (!(error instanceof Error)) {
    return { kind: THREW, site: 0, status: 0, message: `thrown: ${inspect(error, { depth: 2 })}`, stack: "" };
  }
  const kind = kindOf(error);
  return {
    kind,
    site: error[SITE] >>> 0,
    status: kind === RESOURCE || kind === DECLARATION ? /** @type {ResourceError} */ (error).status & 0xffff : kind === BODY ? 400 : 0,
    message: kind === THREW ? String(error) : String(error.message),
    stack: stackOf(error),
  };
}

/** Without the worker's own lines, and with code as `NAME:line:column`: newer V8 name the eval in between. */
export function stackOf(error) {
  const lines = String(error.stack ?? "").split("\n");
  return lines.filter((line) => !line.includes(OWN)).join("\n").replaceAll(", <anonymous>:", ":");
}

function kindOf(error) {
  if (error instanceof ResourceError) return RESOURCE;
  if (error instanceof StateError) return STATE;
  if (error instanceof DeclarationError) return DECLARATION;
  if (error instanceof AnswerError) return ANSWER;
  return error instanceof BodyError ? BODY : THREW;
}

/**
 * Why a value has no JSON, and where in it: a circle, a BigInt, something that throws.
 * @param {unknown} value
 * @param {Error} error that JSON.stringify threw
 */
export function unspeakable(value, error) {
  const found = find(value, "", []);
  if (found === undefined) return new AnswerError(`what \`respond\` was given can't be JSON: ${error.message}`);
  const place = found.path === "" ? "" : `, at \`${found.path.replace(/^\./, "")}\``;
  return new AnswerError(`what \`respond\` was given can't be JSON: ${found.what}${place} (S rule 13)`);
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
