// What a handler gets of its request, `query`, and what it sets on its answer beside the body, `response`.

import { inspect } from "node:util";

import { JSON_ASCII, JSON_TEXT } from "./frames.js";

const { parse } = JSON;
const { keys } = Object;

/** Members that are about the request, and hidden from loops. */
const RESERVED = new Set(["$method", "$path", "$headers", "$body"]);
export const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** Answers of HTTP: what is below comes before one. */
const LEAST_STATUS = 200;
const MOST_STATUS = 999;

/** The body is not the JSON that its type claims. */
export class BodyError extends Error {}

/** What a handler answers can't be sent. */
export class AnswerError extends Error {}

/** Its members are the parameters, and those of a JSON body; it has nothing of Object.prototype (rules 14, 22). */
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

  /** The URL's parameters come first, and stay. */
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

/** Status and headers of the answer, beside `respond` (rule 13), and the end of a nested resource (rule 10). */
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

  /** Checked here, so that an error has its place: what a handler sets may come from a request. */
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

  /** What was set, whatever a handler made of its object. @param {Response} response */
  static statusOf(response) {
    return response.#status;
  }

  /** The headers as JSON, with those of a status response among them; empty if there are none. */
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
 * A status as a number. A text is one if it is a number's: parameters of a URL are texts.
 * @param {any} status
 * @returns {number}
 */
export function checkedStatus(status) {
  const number = typeof status === "string" ? Number(status) : status;
  if (Number.isInteger(number) && number >= LEAST_STATUS && number <= MOST_STATUS) return number;
  const is = typeof status === "string" || typeof status === "number" ? inspect(status) : `a value of type ${typeof status}`;
  throw new AnswerError(`a status is a whole number from ${LEAST_STATUS} to ${MOST_STATUS}, and not ${is} (S rule 13)`);
}
