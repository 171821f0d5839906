// The request as handlers see it, `query`, and the properties of the response besides its body, `response`.

import { inspect } from "node:util";

import { JSON_ASCII, JSON_TEXT } from "./frames.js";

const { parse } = JSON;
const { keys } = Object;

/** Members that describe the request, and are not enumerable. */
const RESERVED = new Set(["$method", "$path", "$headers", "$body"]);
export const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** The range of final statuses of HTTP; those below are interim responses. */
const LEAST_STATUS = 200;
const MOST_STATUS = 999;

/** The body has a JSON media type but is not JSON. */
export class BodyError extends Error {}

/** A handler's response can't be sent. */
export class AnswerError extends Error {}

/**
 * An object with the parameters and the members of a JSON body; it inherits nothing from Object.prototype
 * (rules 14, 22).
 */
export class Query {
  #method;
  #path;
  #headers;
  #body;

  constructor(method, path, parameters, headers, kind, content) {
    this.#method = method;
    this.#path = path;
    this.#headers = headers;
    this.#body = content;
    if (parameters !== "") this.#add(parse(parameters));
    if (kind !== JSON_TEXT && kind !== JSON_ASCII) return;
    const body = (this.#body = parsedBody(content));
    if (typeof body === "object" && body !== null && !Array.isArray(body)) this.#add(body);
  }

  /** Adds members. Existing ones take precedence: the URL's parameters are added first. */
  #add(members) {
    for (const name of keys(members)) {
      if (!(name in this) && !RESERVED.has(name)) this[name] = members[name];
    }
  }

  get $method() {
    return METHODS[this.#method];
  }

  get $path() {
    return this.#path;
  }

  get $headers() {
    if (typeof this.#headers === "string") this.#headers = this.#headers === "" ? {} : parse(this.#headers);
    return this.#headers;
  }

  get $body() {
    return this.#body;
  }
}
Object.setPrototypeOf(Query.prototype, null);
delete (/** @type {any} */ (Query.prototype).constructor);

function parsedBody(text) {
  try {
    return parse(text);
  } catch (error) {
    throw new BodyError(`the request's body is not the JSON that its type claims: ${error.message}`);
  }
}

/**
 * The status and headers of the response, besides `respond` (rule 13), and the removal of a nested resource
 * (rule 10).
 */
export class Response {
  #run;
  #headers;
  /** @type {number | undefined} */
  #status;

  constructor(run) {
    this.#run = run;
  }

  get status() {
    return this.#status;
  }

  /** Checks the status here, so that an error has a position: the value may come from a request. */
  set status(status) {
    this.#status = status === undefined || status === null ? undefined : checkedStatus(status);
  }

  get headers() {
    return (this.#headers ??= {});
  }

  set headers(headers) {
    this.#headers = headers;
  }

  /** Removes the resource that this handler belongs to, when the run commits. */
  remove() {
    this.#run.remove();
  }

  /** Returns the status, even if a handler has modified its object. @param {Response} response */
  static statusOf(response) {
    return response.#status;
  }

  /** Returns the headers as JSON, merged with those of a status response; empty if there are none. */
  static headersOf(response, more) {
    const own = response.#headers;
    if (own === undefined && more === undefined) return "";
    const all = Object.create(null);
    for (const headers of [own, more]) {
      for (const name of keys(headers ?? {})) {
        const value = headers[name];
        if (value !== undefined && value !== null) all[name] = Array.isArray(value) ? value.map(String) : String(value);
      }
    }
    return JSON.stringify(all);
  }
}

/**
 * Converts a status to a number. Numeric strings are accepted, since parameters of a URL are strings.
 * @param {any} status
 * @returns {number}
 */
export function checkedStatus(status) {
  const number = typeof status === "string" ? Number(status) : status;
  if (Number.isInteger(number) && number >= LEAST_STATUS && number <= MOST_STATUS) return number;
  const is = typeof status === "string" || typeof status === "number" ? inspect(status) : `a value of type ${typeof status}`;
  throw new AnswerError(`a status must be an integer from ${LEAST_STATUS} to ${MOST_STATUS}, not ${is} (S rule 13)`);
}
