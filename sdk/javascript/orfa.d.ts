/**
 * Types of an ORFA query in JavaScript or TypeScript. Nothing has to be installed: copy this file into the folder of
 * the program (or, with `@orfa/client`, import the types from "@orfa/client/program"), and write
 *
 * ```ts
 * import type { Services } from "./orfa";
 *
 * export default async function ({ n = 8 }, { profile, catalog }: Services) {
 *   const buyers = await profile.get("/buyers", { limit: n });
 *   return Promise.all(buyers.map((b) => catalog.get("/catalogs/{id}", { id: b.id })));
 * }
 * ```
 *
 * A program is one ES module without imports. Its default export is called once per request with the input and the
 * services. Its return value, or the value that its promise resolves to, is the answer:
 *
 * | returned                                  | answer                                                 |
 * | ----------------------------------------- | ------------------------------------------------------ |
 * | `undefined`, `null`                       | 204, no body                                           |
 * | a string                                  | 200, `text/plain; charset=utf-8`                       |
 * | a number, boolean, array or other object  | 200, `application/json`, as `JSON.stringify` writes it |
 * | a typed array, `DataView`, `ArrayBuffer`  | 200, `application/octet-stream`                        |
 * | a `Response`                              | its status, headers and body                           |
 *
 * A function, symbol, BigInt or cyclic object can't be an answer, and an uncaught exception ends the run; both become
 * a problem (RFC 9457) with `line` and `column` in the program. So does a promise that can never settle because no
 * call is in flight. Values that `JSON.stringify` writes as `{}`, without their data, are rejected too: a `Map`, a `Set`
 * and a promise also as members, `Headers`, `URLSearchParams`, an `Error` or an iterator only as the answer itself. So
 * is an `ArrayBuffer` that is detached. `Response.json` throws a `TypeError` for the same values.
 *
 * The input is JSON, and `{}` if the client sent none. A program declares other input with
 * `export const input = "text"` (a string) or `export const input = "bytes"` (a `Uint8Array`).
 *
 * There are no timers, no files, and no network except for the services, and every run starts afresh. After the
 * program has returned, it goes on until no call that may change something (all but GET and HEAD) is pending; reads are
 * dropped. If such a call fails, now or before, and no handler takes its error, the run ends with it.
 * `Date` and `performance.now()` have a resolution of a millisecond, and `performance.now()` is 0 at its first call.
 * Function calls nest about 600 deep; beyond that a `RangeError` is thrown.
 *
 * Other globals: `Response`, `Headers`, `URLSearchParams`, `TextEncoder` (without `encodeInto`),
 * `TextDecoder` (utf-8, no streams), `console` (debug, error, info, log, warn), `atob`, `btoa`, `crypto`
 * (`getRandomValues`, `randomUUID`), `performance.now`, `queueMicrotask`, and all of ECMAScript except Intl,
 * Atomics, SharedArrayBuffer and `structuredClone`. Their types come with TypeScript's `lib: ["dom"]`.
 */

/** A value of a parameter. A `Date` is sent in ISO 8601; an array is joined by commas: `ids=1,2,3`. */
export type Param = string | number | bigint | boolean | Date | readonly (string | number | bigint | boolean | Date)[];

/**
 * Parameters of a call. Those that the path contains as `{name}` are filled in there, percent-encoded (empty text, `.`
 * and `..` are rejected, also as items of an array); the others become the query. `get` and `head` leave out `null` and
 * `undefined`. Other methods throw a `TypeError` for them, and for an array that is empty or has an empty text in it, since
 * a service may take either for everything: leave out the name instead. U+0000 is sent as `%00`, which the gateway
 * rejects in a path; an unpaired surrogate is sent as U+FFFD.
 *
 * A `URLSearchParams` is sent as the query, and fills no placeholder in the path. Objects that aren't plain (a `Map`,
 * `Headers`, an instance of a class) throw a `TypeError`.
 */
export type Params = Readonly<Record<string, Param | null | undefined>> | URLSearchParams;

/**
 * A body to send: bytes as `application/octet-stream`, `URLSearchParams` as a form, any other value (also a string)
 * as JSON. `undefined` sends none. A value whose data JSON would leave out (a promise that was not awaited, a `Map`, a
 * `Response`), and a detached `ArrayBuffer`, throw a `TypeError`, and nothing is sent.
 */
export type Body = unknown;

/** The options of `fetch`. */
export interface FetchInit {
  /** Default: GET. */
  method?: string;
  headers?: ConstructorParameters<typeof Headers>[0];
  /** Text, bytes or a form. Objects are rejected: use `JSON.stringify(object)` and set the content type. */
  body?: string | ArrayBuffer | ArrayBufferView | URLSearchParams | null;
}

/**
 * A service that the route allows. Each call is sent immediately; calls whose promises are awaited together overlap. A
 * path begins with `/`; characters that a URL can't contain are percent-encoded.
 *
 * A call resolves to the body: parsed for `application/json` and `+json`, a string for `text/*`, `null` if it is empty,
 * else a `Uint8Array`. It rejects with a {@link ServiceError} if the status is not 200 to 299 (redirects are not
 * followed), if the body is not the JSON that it claims to be, or if there was no answer. Invalid arguments throw a
 * `TypeError` immediately.
 */
export interface Service {
  get<T = any>(path: string, params?: Params): Promise<T>;
  /** Resolves to the headers. */
  head(path: string, params?: Params): Promise<Headers>;
  post<T = any>(path: string, body?: Body, params?: Params): Promise<T>;
  put<T = any>(path: string, body?: Body, params?: Params): Promise<T>;
  patch<T = any>(path: string, body?: Body, params?: Params): Promise<T>;
  delete<T = any>(path: string, params?: Params): Promise<T>;
  /**
   * Resolves to a `Response` whatever its status; rejects with a {@link ServiceError} only if there was no answer. The
   * path is sent unchanged, without placeholders. A program may return the `Response`; headers that an answer may not
   * contain are then left out.
   */
  fetch(path: string, init?: FetchInit): Promise<Response>;
}

/**
 * The services of the route by name. Reading another name throws a `TypeError` that lists them. For exact names:
 * `type Mine = { catalog: Service }`.
 */
export type Services = Readonly<Record<string, Service>>;

/** The default export of a program. */
export type Program<Input = any> = (input: Input, services: Services) => unknown;

/**
 * The reason why there was no usable answer: `unreachable` (no connection), `timeout`, `broken` (it broke off),
 * `not-json`, `too-deep` (JSON of more than 1024 levels). A call that the rules of the route forbid (an unknown
 * service, a method, a path, a header) ends the program, and can't be caught.
 */
export type Reason = "unreachable" | "timeout" | "broken" | "not-json" | "too-deep";

declare global {
  /** The error of a failed call. Its stack is that of the place where the call began. */
  class ServiceError extends Error {
    readonly name: "ServiceError";
    /** The name of the service. */
    readonly service: string;
    readonly method: string;
    /** Path and query as they were sent. */
    readonly path: string;
    /** The status of the answer, 0 if there was none. */
    readonly status: number;
    /** The body of the answer, read like that of a successful one; `null` if there is none. */
    readonly body: any;
    /** `undefined` if there was an answer of a status other than 200 to 299. */
    readonly reason: Reason | undefined;
  }
}
