// The client of ORFA queries. client.d.ts documents the interface, docs/query.md the protocol.
//
// A call: `Program` or `stored` makes a request from an input, `sender` sends it, `read` turns the response into an
// answer or an OrfaError. A program has its token in memory, and on the `Shelf` if there is a store. A request is sent
// again in one case: the gateway asks for the program (`send_program`), and so nothing ran. If several gateways share
// an address, the second request may reach another one. So the program is sent with each call until the gateway that
// asked for it has answered one.

import { decode, JSON_TYPE } from "./dedup.js";

/** @import * as Types from "./client.d.ts" */
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {{ method: string, body?: Bytes, fields: Record<string, string | undefined> }} Question */
/** @typedef {Types.CallOptions & { dedup?: boolean }} Call */
/** @typedef {(url: URL, question: Question, call: Call) => Promise<Response>} Send */
/** @typedef {(input: unknown, call: Call) => Promise<Response>} Ask */

/** `ORFA-Cache` of a request by token. */
const TOKEN = /^(code|instance);token=:[\w+/=]+:$/;
/** The number of tokens in a store. */
const KEPT = 32;
/** Limits the calls that send a program because a gateway asked for it: that gateway may never answer again. */
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
 * Returns a function that resolves to answers, with a `fetch` that resolves to the original responses.
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
 * Returns a function that sends requests with the gateway's own options.
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

/** A program, and the token or hash that the gateway knows it by. */
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
    /** @type {string | undefined} `ORFA-Cache` of the next request without the program. */
    this.known = undefined;
    /** @type {Promise<void> | undefined} */
    this.recalled = undefined;
    /** @type {Map<string, number>} The gateways that asked for the program, and how many more calls send it. */
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
      // The token is no longer valid, unless another answer has brought a newer one.
      else if (this.known === known) this.keep(undefined);
    }
    const length = data.length ? String(data.length) : undefined;
    const whole = { ...fields, "orfa-cache": mode, "orfa-trust": signature, "orfa-input": length };
    return this.learn(await send(route, { method, body: joined(data, bytes), fields: whole }, call), true);
  }

  /** Looks for a token from earlier pages. Without one the hash is used, if enabled. */
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
   * @param {boolean} [isWhole] whether the request contained the program
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

/** Tokens that outlive the page: one entry of a store, with the latest tokens. */
class Shelf {
  /**
   * @param {Types.TokenStore} store
   * @param {string} key
   */
  constructor(store, key) {
    this.store = store;
    this.key = key;
    /** Serialises the changes, since the store may be asynchronous. */
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
      // The store is full or forbidden: the token lives as long as the page.
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
 * Returns `Retry-After`, which is in seconds or a date, in milliseconds.
 * @param {Response} response
 */
function waitOf(response) {
  const value = response.headers.get("retry-after") ?? "";
  const wait = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

/**
 * Returns the gateway's problem document. The response can still be read.
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
 * Returns the bytes of a buffer or view.
 * @param {unknown} value
 */
function rawBytes(value) {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return undefined;
  return new Uint8Array(/** @type {ArrayBuffer} */ (value.buffer), value.byteOffset, value.byteLength);
}

/**
 * Returns an input as it is sent.
 * @param {unknown} input
 * @returns {Bytes}
 */
function bytesOf(input) {
  const raw = input === undefined ? new Uint8Array() : rawBytes(input);
  if (raw) return raw;
  const text = JSON.stringify(input);
  if (text === undefined) throw new TypeError(`a ${typeof input} can't be an input: pass a JSON value or bytes`);
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
    if (typeof value === "object" && value) throw new TypeError(`\`${name}\` can't be a URL parameter: use POST or QUERY`);
    if (value !== undefined && value !== null) url.searchParams.append(name, value);
  }
  return url;
}

/**
 * Merges headers; a name in a later layer replaces earlier ones.
 * @param {ConstructorParameters<typeof Headers>[0][]} layers
 */
function merged(...layers) {
  const all = new Headers();
  for (const layer of layers) new Headers(layer).forEach((value, name) => all.set(name, value));
  return all;
}

/**
 * Returns the hash in base64, or undefined without `crypto.subtle`.
 * @param {Bytes} bytes
 */
async function sha256(bytes) {
  const hash = await globalThis.crypto?.subtle?.digest("SHA-256", bytes);
  return hash && btoa(String.fromCharCode(...new Uint8Array(hash)));
}
