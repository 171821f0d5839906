/**
 * Sends programs to an ORFA gateway, from browsers and from Node. README.md shows how; client.js is what
 * runs, and is checked against this file.
 */

import type { Services } from "./orfa.js";

/** The gateway's query route: its URL, or that of the gateway where the route is `/query`. */
export function orfa(url: string | URL, options?: GatewayOptions): Gateway;

export interface Gateway {
  /**
   * A program to be called. A function is sent as its text: it sees its parameters and nothing around it.
   * A string is an ES module, in JavaScript unless `type` says otherwise; bytes are WebAssembly.
   */
  program<Input, Answer, Mine = Services>(
    program: (input: Input, services: Mine) => Answer,
    options?: ProgramOptions,
  ): Callable<Input, Answered<Awaited<Answer>>>;
  program<Input = any, Answer = any>(
    program: string | ArrayBuffer | ArrayBufferView,
    options?: ProgramOptions,
  ): Callable<Input, Answer>;
  /** A program that the gateway has stored: `orders`, or a version of it, `orders@HASH`. */
  stored<Input = any, Answer = any>(name: string, options?: StoredOptions): Callable<Input, Answer>;
}

/** A program that can be called. */
export interface Callable<Input, Answer> {
  /**
   * Resolves to the program's answer: JSON parsed, text as a string, `null` where there is no body, else a
   * `Uint8Array`. Rejects with the signal's reason if it is cancelled, else with an {@link OrfaError}.
   *
   * The input travels as JSON; an `ArrayBuffer` or a view of one as its bytes; `undefined` as nothing.
   */
  (...args: Arguments<Input>): Promise<Answer>;
  /** Resolves to the response itself, whatever its status; rejects only where there is none. */
  fetch(...args: Arguments<Input>): Promise<Response>;
}

/** An input may be left out where the program needs nothing of it. */
type Arguments<Input> = {} extends Input
  ? [input?: Input, options?: CallOptions]
  : [input: Input, options?: CallOptions];

/** What comes of what a program returns. */
type Answered<Returned> = Returned extends Response ? any : Returned extends undefined | void ? null : Returned;

/** Headers, as `fetch` takes them. */
type HeaderFields = ConstructorParameters<typeof Headers>[0];

export interface GatewayOptions extends CacheOptions {
  /** Headers of every request, or what makes them: called for each. */
  headers?: HeaderFields | (() => HeaderFields | Promise<HeaderFields>);
  /** Whether cookies travel, as in `fetch`. */
  credentials?: "include" | "omit" | "same-origin";
  limits?: Limits;
  /**
   * Whether answers may come deduplicated, so that JSON with many equal objects is read faster. Those are then one
   * object, and frozen: a program that changes its answers makes a copy of them, or says `false`. `true` unless
   * you do, but for a call with an `Accept` of its own.
   */
  dedup?: boolean;
  /** In place of the global `fetch`. */
  fetch?: (url: string, init: any) => Promise<Response>;
  /** Where tokens outlive the page: `localStorage`, or anything like it. What it throws is ignored. */
  store?: TokenStore;
}

export interface ProgramOptions extends CacheOptions {
  /** What the program is: `text/javascript` for a string or a function, `application/wasm` for bytes. */
  type?: "text/javascript" | "text/typescript" | "application/wasm";
  /** The program may make safe calls only: it is sent with the method `QUERY`. */
  safe?: boolean;
  /** Who signed the program: what `orfa query sign` prints, the value of `ORFA-Trust`. */
  signature?: string;
  headers?: HeaderFields;
  limits?: Limits;
}

export interface StoredOptions {
  /** `POST` unless you say otherwise. With `GET` the input's members become URL parameters. */
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
   * What the gateway keeps of a program, so that later calls send a token in its place: the compiled `code`
   * (the default), or a live `instance` as well, for which you promise that the program keeps nothing from
   * one call to the next. `false`: the program travels with each call.
   */
  cache?: "code" | "instance" | false;
  /** Ask for the program by its SHA-256 first. Needs `crypto.subtle`, and does nothing without it. */
  hash?: boolean;
}

/** What a call is granted at most: ms, counts and bytes. The operator's own limits hold if they are smaller. */
export interface Limits {
  cpu?: number;
  deadline?: number;
  memory?: number;
  calls?: number;
  parallel?: number;
  received?: number;
  output?: number;
}

/** The part of `Storage` that tokens need; it may answer later. */
export interface TokenStore {
  getItem(key: string): string | null | undefined | Promise<string | null | undefined>;
  setItem(key: string, value: string): unknown;
}

/** An upstream call that a problem lists: one that may have changed something, or that failed. */
export interface UpstreamCall {
  service: string;
  method: string;
  path: string;
  status: number | "no answer" | "not sent";
}

/** Why a call has no answer. `message` says it in words. */
export class OrfaError extends Error {
  private constructor();
  readonly name: "OrfaError";
  /**
   * A code of docs/errors.md, or one of the client's own: `unreachable` (no answer, or none that this page
   * may read), `broken` (it broke off), `not-json` (it is not the JSON that it claims to be), `answer-status`
   * (the program's own answer, of another status than 200 to 299).
   */
  readonly code: string;
  /** The status of the answer, 0 where there was none. */
  readonly status: number;
  /** What to do about it. */
  readonly hint: string | undefined;
  /** Where in the program, from 1. Of a function, in its text behind `export default `. */
  readonly line: number | undefined;
  readonly column: number | undefined;
  /** The last 4 KB that the program logged. */
  readonly console: string | undefined;
  /** Calls that may have changed something, and those that failed. */
  readonly calls: readonly UpstreamCall[] | undefined;
  /** For how many milliseconds to stay away. */
  readonly retryAfter: number | undefined;
  /** The problem document (RFC 9457) as it came. */
  readonly problem: Readonly<Record<string, any>> | undefined;
  /** What came in place of an answer and is no problem, read like an answer. */
  readonly body: any;
  /** The response, its body read. */
  readonly response: Response | undefined;
}
