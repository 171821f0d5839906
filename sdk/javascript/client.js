// The client of ORFA queries. What its users see of it is client.d.ts, what it sends docs/query.md.
//
// The way of a call: `Program` or `stored` makes a request of an input, `sender` sends it, `read` makes an
// answer or an OrfaError of the response. A program keeps its token in memory, and on the `Shelf` if there
// is a store. It is sent again in one case: the gateway asks for it (`send_program`), and so says that nothing ran.
// Of several gateways behind one address the second request may reach another one. So a program goes with each call until
// the gateway that asked for it has answered one.

import { decode, JSON_TYPE } from "./dedup.js";

/** @import * as Types from "./client.d.ts" */
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {{ method: string, body?: Bytes, fields: Record<string, string | undefined> }} Question */
/** @typedef {Types.CallOptions & { dedup?: boolean }} Call */
/** @typedef {(url: URL, question: Question, call: Call) => Promise<Response>} Send */
/** @typedef {(input: unknown, call: Call) => Promise<Response>} Ask */

/** `ORFA-Cache` of a request by token. */
const TOKEN = /^(code|instance);token=:[\w+/=]+:$/;
/** How many of them a store keeps. */
const KEPT = 32;
/** With how many calls a program goes at most for one gateway that asked for it: it may never answer again. */
const TRIES = 32;

/** @type {typeof Types.orfa} */
export function orfa(url, options = {}) {
  const route = routeOf(url);
  const send = sender(options);
  const dedup = options.dedup ?? true;
  const shelf = options.store && new Shelf(options.store, `orfa ${route.href}`);
  return {
    program(/** @type {unknown} */ source, /** @type {Types.ProgramOptions} */ own = {}) {
      const program = new Program(source, { cache: options.cache, hash: options.hash, ...own }, shelf);
      return callable(own, dedup, (input, call) => program.ask(send, route, input, call));
    },
    stored: (name, own = {}) => callable(own, dedup, stored(send, route, name, own.method)),
  };
}

/**
 * A function that resolves to answers, and its `fetch`, which resolves to responses as they came.
 * @param {Types.CallOptions} own
 * @param {boolean} dedup
 * @param {Ask} ask
 * @returns {Types.Callable<any, any>}
 */
function callable(own, dedup, ask) {
  /** @type {Ask} */
  const send = async (input, { signal, headers, limits, dedup }) =>
    ask(input, { signal, headers: merged(own.headers, headers), limits: { ...own.limits, ...limits }, dedup });
  /** @type {(input: unknown, call?: Types.CallOptions) => Promise<any>} */
  const answer = async (input, call = {}) => read(await send(input, { ...call, dedup }), call.signal);
  /** @type {(input: unknown, call?: Types.CallOptions) => Promise<Response>} */
  const fetch = (input, call = {}) => send(input, { ...call, dedup: false });
  return Object.assign(answer, { fetch });
}

/**
 * What sends requests with the gateway's own options.
 * @param {Types.GatewayOptions} options
 * @returns {Send}
 */
function sender({ fetch = (url, init) => globalThis.fetch(url, init), credentials, headers, limits }) {
  return async (url, { method, body, fields }, { signal, ...call }) => {
    const all = merged(typeof headers === "function" ? await headers() : headers, call.headers);
    const granted = Object.entries({ ...limits, ...call.limits }).filter(([, value]) => value !== undefined);
    const limit = granted.map(([word, value]) => `${word}=${value}`).join(", ");
    for (const [name, value] of Object.entries({ ...fields, "orfa-limit": limit })) {
      if (value) all.set(name, value);
    }
    if (call.dedup && !all.has("accept")) all.set("accept", `${JSON_TYPE}, */*;q=0.9`);
    try {
      return await fetch(url.href, { method, headers: all, body, signal, ...(credentials && { credentials }) });
    } catch (cause) {
      signal?.throwIfAborted();
      throw new OrfaError("unreachable", `no answer from ${url.host}, or none that this page may read`, { cause });
    }
  };
}

/** A program, and what the gateway knows it by. */
class Program {
  /**
   * @param {unknown} source
   * @param {Types.ProgramOptions} options
   * @param {Shelf} [shelf]
   */
  constructor(source, { type, safe, signature, cache = "code", hash }, shelf) {
    const isText = typeof source === "string" || typeof source === "function";
    this.bytes = isText ? new TextEncoder().encode(textOf(source)) : rawBytes(source);
    if (!this.bytes) throw new TypeError("a program is a function, a text, or the bytes of a module");
    this.method = safe ? "QUERY" : "POST";
    this.fields = { "content-type": type ?? (isText ? "text/javascript" : "application/wasm") };
    this.signature = signature;
    this.mode = cache || undefined;
    this.byHash = hash;
    this.shelf = shelf;
    /** @type {string | undefined} `ORFA-Cache` of the next request without program. */
    this.known = undefined;
    /** @type {Promise<void> | undefined} */
    this.recalled = undefined;
    /** @type {Map<string, number>} The gateways that asked for the program, and with how many calls it still goes. */
    this.asking = new Map();
  }

  /** @type {(send: Send, route: URL, input: unknown, call: Call) => Promise<Response>} */
  async ask(send, route, input, call) {
    const { method, bytes, fields, signature, mode } = this;
    const data = bytesOf(input);
    if (mode && (this.shelf || this.byHash)) await (this.recalled ??= this.recall());
    const known = this.asking.size ? undefined : this.known;
    if (known) {
      const trust = TOKEN.test(known) ? undefined : signature;
      const named = { ...fields, "orfa-cache": known, "orfa-trust": trust };
      const response = await send(route, { method, body: data, fields: named }, call);
      const problem = await problemOf(response);
      if (problem?.send_program !== true) return this.learn(response);
      if (typeof problem.gateway === "string") this.asking.set(problem.gateway, TRIES);
      // The token is no good, unless another answer has brought a fresher one.
      else if (this.known === known) this.keep(undefined);
    }
    const length = data.length ? String(data.length) : undefined;
    const whole = { ...fields, "orfa-cache": mode, "orfa-trust": signature, "orfa-input": length };
    return this.learn(await send(route, { method, body: joined(data, bytes), fields: whole }, call), true);
  }

  /** Looks for a token from earlier pages; without one the hash will do, if wanted. */
  async recall() {
    const hash = await sha256(this.bytes);
    if (!hash) return;
    this.name = `${this.mode} ${hash}`;
    const stored = await this.shelf?.get(this.name);
    const byHash = this.byHash ? `${this.mode};hash=:${hash}:` : undefined;
    this.known ??= stored && TOKEN.test(stored) ? stored : byHash;
  }

  /**
   * @param {Response} response
   * @param {boolean} [isWhole] whether the program went with the request
   */
  learn(response, isWhole) {
    const field = response.headers.get("orfa-cache")?.replace(/"(\\.|[^"\\])*"/g, "");
    const gateway = field?.match(/;\s*gateway=([\w*.-]+)/)?.[1];
    for (const [asking, tries] of isWhole ? this.asking : []) {
      if (asking === gateway || tries === 1) this.asking.delete(asking);
      else this.asking.set(asking, tries - 1);
    }
    const [, mode, token] = field?.match(/^(code|instance)\b.*?;\s*token=(:[\w+/=]+:)/) ?? [];
    if (token && this.mode) this.keep(`${mode};token=${token}`);
    return response;
  }

  /** @param {string | undefined} known */
  keep(known) {
    if (this.known === known) return;
    this.known = known;
    if (this.name) this.shelf?.set(this.name, known);
  }
}

/** Tokens that outlive the page: one entry of a store, with the latest. */
class Shelf {
  /**
   * @param {Types.TokenStore} store
   * @param {string} key
   */
  constructor(store, key) {
    this.store = store;
    this.key = key;
    /** One change after the other, since the store may answer later. */
    this.changes = Promise.resolve();
  }

  /** @param {string} name */
  async get(name) {
    return (await this.all())[name];
  }

  /** @type {(name: string, token: string | undefined) => void} */
  set(name, token) {
    this.changes = this.changes.then(async () => {
      const { [name]: _, ...others } = await this.all();
      const latest = Object.entries(token ? { ...others, [name]: token } : others).slice(-KEPT);
      await this.store.setItem(this.key, JSON.stringify(Object.fromEntries(latest)));
      // A store that is full or forbidden: the token lives as long as the page.
    }).catch(() => {});
  }

  /** @returns {Promise<Record<string, string>>} */
  async all() {
    try {
      return { ...JSON.parse((await this.store.getItem(this.key)) ?? "{}") };
    } catch {
      return {};
    }
  }
}

/** @type {(send: Send, route: URL, name: string, method?: string) => Ask} */
function stored(send, route, name, method = "POST") {
  const place = new URL(route);
  place.pathname += `/${encodeURIComponent(name).replace("%40", "@")}`;
  return async (input, call) => {
    if (method === "GET") return send(withParameters(place, input), { method, fields: {} }, call);
    const fields = { "content-type": rawBytes(input) ? "application/octet-stream" : "application/json" };
    return send(place, { method, body: bytesOf(input), fields }, call);
  };
}

/** @type {(response: Response, signal?: AbortSignal) => Promise<any>} */
async function read(response, signal) {
  const body = await bodyOf(response, signal);
  if (response.ok) return body;
  if (isProblem(response) && typeof body?.code === "string") {
    throw new OrfaError(body.code, body.detail ?? body.title, { response, problem: body });
  }
  throw new OrfaError("answer-status", `the answer has status ${response.status}`, { response, body });
}

/** @type {(response: Response, signal?: AbortSignal) => Promise<any>} */
async function bodyOf(response, signal) {
  const type = essence(response);
  const isJson = type === "application/json" || type.endsWith("+json");
  const isText = isJson || type.startsWith("text/");
  let body;
  try {
    body = isText ? await response.text() : new Uint8Array(await response.arrayBuffer());
  } catch (cause) {
    signal?.throwIfAborted();
    throw new OrfaError("broken", "the answer broke off", { response, cause });
  }
  if (!body.length) return null;
  try {
    const said = isJson ? JSON.parse(String(body)) : body;
    return type === JSON_TYPE ? decode(said) : said;
  } catch (cause) {
    throw new OrfaError("not-json", "the answer is not the JSON that it claims to be", { response, body, cause });
  }
}

/** @implements {Types.OrfaError} */
export class OrfaError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{ response?: Response, body?: any, problem?: Record<string, any>, cause?: unknown }} about
   */
  constructor(code, message, { response, body, problem, cause }) {
    super(message, cause === undefined ? {} : { cause });
    this.name = /** @type {const} */ ("OrfaError");
    this.code = code;
    this.status = response?.status ?? 0;
    this.hint = problem?.hint;
    this.line = problem?.line;
    this.column = problem?.column;
    this.console = problem?.console;
    this.calls = problem?.calls;
    this.retryAfter = response && waitOf(response);
    this.problem = problem;
    this.body = body;
    this.response = response;
  }
}

/**
 * `Retry-After` in milliseconds; it comes in seconds, or as a date.
 * @param {Response} response
 */
function waitOf(response) {
  const value = response.headers.get("retry-after") ?? "";
  const wait = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

/**
 * What the gateway says is wrong. The response can still be read.
 * @param {Response} response
 */
async function problemOf(response) {
  return isProblem(response) ? response.clone().json().catch(() => null) : null;
}

/** @param {Response} response */
function isProblem(response) {
  return essence(response) === "application/problem+json";
}

/** @param {Response} response */
function essence(response) {
  return (response.headers.get("content-type") ?? "").replace(/;.*/, "").trim().toLowerCase();
}

/** @param {string | Function} source */
function textOf(source) {
  if (typeof source === "string") return source;
  const text = String(source);
  if (text.endsWith("{ [native code] }")) throw new TypeError("a bound or built-in function has no text to send");
  return `export default ${text}`;
}

/**
 * The bytes of what is bytes.
 * @param {unknown} value
 */
function rawBytes(value) {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return undefined;
  return new Uint8Array(/** @type {ArrayBuffer} */ (value.buffer), value.byteOffset, value.byteLength);
}

/**
 * An input as it travels.
 * @param {unknown} input
 * @returns {Bytes}
 */
function bytesOf(input) {
  const raw = input === undefined ? new Uint8Array() : rawBytes(input);
  if (raw) return raw;
  const text = JSON.stringify(input);
  if (text === undefined) throw new TypeError(`a ${typeof input} is no input: give a JSON value or bytes`);
  return new TextEncoder().encode(text);
}

/** @type {(first: Bytes, second: Bytes) => Bytes} */
function joined(first, second) {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/**
 * The URL of the query route, by convention `/query`.
 * @param {string | URL} url
 */
function routeOf(url) {
  const route = new URL(url, globalThis.location?.href);
  route.pathname = route.pathname.replace(/\/$/, "") || "/query";
  return route;
}

/** @type {(place: URL, input: unknown) => URL} */
function withParameters(place, input = {}) {
  const url = new URL(place);
  const isPlain = typeof input === "object" && !Array.isArray(input) && !rawBytes(input);
  if (!isPlain) throw new TypeError("only an object's members become URL parameters: use POST or QUERY");
  for (const [name, value] of Object.entries(input ?? {})) {
    if (typeof value === "object" && value) throw new TypeError(`\`${name}\` is no URL parameter: use POST or QUERY`);
    if (value !== undefined && value !== null) url.searchParams.append(name, value);
  }
  return url;
}

/**
 * Headers, each from the last that names it.
 * @param {ConstructorParameters<typeof Headers>[0][]} layers
 */
function merged(...layers) {
  const all = new Headers();
  for (const layer of layers) new Headers(layer).forEach((value, name) => all.set(name, value));
  return all;
}

/**
 * In base64; nothing where there is no `crypto.subtle`.
 * @param {Bytes} bytes
 */
async function sha256(bytes) {
  const hash = await globalThis.crypto?.subtle?.digest("SHA-256", bytes);
  return hash && btoa(String.fromCharCode(...new Uint8Array(hash)));
}
