/**
 * Sends programs to an ORFA gateway, from browsers and from Node. README.md is the guide; client.js is the
 * implementation, and is type-checked against this file.
 */

import type { Services } from "./orfa.js";

/** Connects to a gateway's query route: `url` is the route's URL, or the gateway's if the route is `/query`. */
export function orfa(url: string | URL, options?: GatewayOptions): Gateway;

export interface Gateway {
  /**
   * Prepares a program for calls. A function is sent as its text: it can use its parameters, but nothing around it.
   * A string is an ES module, by default in JavaScript (see `type`); bytes are WebAssembly.
   */
  program<Input, Answer, Mine = Services>(
    program: (input: Input, services: Mine) => Answer,
    options?: ProgramOptions,
  ): Callable<Input, Answered<Awaited<Answer>>>;
  program<Input = any, Answer = any>(
    program: string | ArrayBuffer | ArrayBufferView,
    options?: ProgramOptions,
  ): Callable<Input, Answer>;
  /** Prepares calls of a program that the gateway has stored: `orders`, or a version of it, `orders@HASH`. */
  stored<Input = any, Answer = any>(name: string, options?: StoredOptions): Callable<Input, Answer>;
}

/** A program that can be called. */
export interface Callable<Input, Answer> {
  /**
   * Resolves to the program's answer: JSON parsed, text as a string, `null` if there is no body, else a
   * `Uint8Array`. Rejects with the signal's reason if it is cancelled, else with an {@link OrfaError}.
   *
   * The input is sent as JSON, an `ArrayBuffer` or a view as bytes, and `undefined` as no input.
   */
  (...args: Arguments<Input>): Promise<Answer>;
  /** Resolves to the response itself, whatever its status; rejects only if there is none. */
  fetch(...args: Arguments<Input>): Promise<Response>;
}

/** The arguments of a call. The input is optional if the program requires no part of it. */
type Arguments<Input> = {} extends Input
  ? [input?: Input, options?: CallOptions]
  : [input: Input, options?: CallOptions];

/** The answer that a client gets for a program's return type. */
type Answered<Returned> = Returned extends Response ? any : Returned extends undefined | void ? null : Returned;

/** Headers, as `fetch` takes them. */
type HeaderFields = ConstructorParameters<typeof Headers>[0];

export interface GatewayOptions extends CacheOptions {
  /** Headers of every request, or a function that returns them and is called for each request. */
  headers?: HeaderFields | (() => HeaderFields | Promise<HeaderFields>);
  /** Whether cookies are sent, as in `fetch`. */
  credentials?: "include" | "omit" | "same-origin";
  limits?: Limits;
  /**
   * Whether answers may come deduplicated, so that JSON with many equal objects is parsed faster. Equal objects are
   * then one frozen object: copy answers to change them, or set this to `false`. Default: `true`, except for calls
   * with their own `Accept`.
   */
  dedup?: boolean;
  /** Replaces the global `fetch`. */
  fetch?: (url: string, init: any) => Promise<Response>;
  /** Stores tokens beyond the life of the page: `localStorage`, or a similar object. Errors are ignored. */
  store?: TokenStore;
}

export interface ProgramOptions extends CacheOptions {
  /** The type of the program. Default: `text/javascript` for a string or a function, `application/wasm` for bytes. */
  type?: "text/javascript" | "text/typescript" | "application/wasm";
  /** Whether the program makes only safe calls. It is then sent with the method `QUERY`. */
  safe?: boolean;
  /** The program's signature: the output of `orfa query sign`, which is the value of `ORFA-Trust`. */
  signature?: string;
  headers?: HeaderFields;
  limits?: Limits;
}

export interface StoredOptions {
  /** Default: `POST`. With `GET` the input's members become URL parameters. */
  method?: "GET" | "POST" | "QUERY";
  headers?: HeaderFields;
  limits?: Limits;
}

export interface CallOptions {
  /** Cancels the call, and the program's run. */
  signal?: AbortSignal;
  headers?: HeaderFields;
  limits?: Limits;
}

export interface CacheOptions {
  /**
   * How the gateway caches a program, so that later calls send a token instead: the compiled `code` (the default), or
   * also a live `instance`, which requires that the program stores no state from one call to the next. `false`: the
   * program is sent with each call.
   */
  cache?: "code" | "instance" | false;
  /** Whether the first call sends only the program's SHA-256. Has no effect without `crypto.subtle`. */
  hash?: boolean;
}

/** Limits for a call: ms, counts and bytes. The operator's own limits apply if they are lower. */
export interface Limits {
  cpu?: number;
  deadline?: number;
  memory?: number;
  calls?: number;
  parallel?: number;
  received?: number;
  output?: number;
}

/** The part of `Storage` that tokens need. It may be asynchronous. */
export interface TokenStore {
  getItem(key: string): string | null | undefined | Promise<string | null | undefined>;
  setItem(key: string, value: string): unknown;
}

/** An upstream call listed in a problem: one that may have changed something, or that failed. */
export interface UpstreamCall {
  service: string;
  method: string;
  path: string;
  status: number | "no answer" | "not sent";
}

/** The error of a call. `message` describes it. */
export class OrfaError extends Error {
  private constructor();
  readonly name: "OrfaError";
  /**
   * A code of docs/errors.md, or one of the client's own: `unreachable` (no answer, or one that this page may not
   * read), `broken` (it broke off), `not-json` (it claims to be JSON but is not), `answer-status` (the program's own
   * answer, of a status other than 200 to 299).
   */
  readonly code: string;
  /** The status of the answer, 0 if there was none. */
  readonly status: number;
  /** A hint how to fix the problem. */
  readonly hint: string | undefined;
  /** The position in the program, from 1. For a function, it is in its text after `export default `. */
  readonly line: number | undefined;
  readonly column: number | undefined;
  /** The last 4 KB that the program logged. */
  readonly console: string | undefined;
  /** The calls that may have changed something, and those that failed. */
  readonly calls: readonly UpstreamCall[] | undefined;
  /** The time in milliseconds to wait before the next request. */
  readonly retryAfter: number | undefined;
  /** The original problem document (RFC 9457). */
  readonly problem: Readonly<Record<string, any>> | undefined;
  /** The body of an answer that isn't a problem document, parsed like an answer. */
  readonly body: any;
  /** The response. Its body has been read. */
  readonly response: Response | undefined;
}
