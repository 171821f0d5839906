// The JavaScript part of the environment's library: Headers, URLSearchParams, Response, ServiceError, the text
// codecs, console, crypto, performance. `sdk/javascript/orfa.d.ts` describes it.
//
// It runs once, when the snapshot is taken, and returns the functions that C calls (`HOOK_*` in host.h). A program
// shares these globals and may change them. So all globals that are used later are captured here, lists have no
// prototype, and no code below iterates, destructures arrays or uses a RegExp.
(function (native) {
  "use strict";
  const { Array, Error, Number, Object, Reflect, String, Symbol, TypeError, RangeError, Uint8Array } = globalThis;
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { isError } = Error;
  const { create, defineProperty, getOwnPropertyDescriptor, hasOwn, keys, setPrototypeOf } = Object;
  const { apply, ownKeys } = Reflect;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const indexOf = uncurry(String.prototype.indexOf);
  const lowerCase = uncurry(String.prototype.toLowerCase);
  const slice = uncurry(String.prototype.slice);
  const trim = uncurry(String.prototype.trim);
  const upperCase = uncurry(String.prototype.toUpperCase);
  const wellFormed = uncurry(String.prototype.toWellFormed);
  const sort = uncurry(Array.prototype.sort);
  const bufferOf = uncurry(getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), "buffer").get);
  const { iterator, toStringTag } = Symbol;
  const stackOf = getOwnPropertyDescriptor(Error.prototype, "stack").get;
  const NONE = create(null);

  const list = () => setPrototypeOf([], null);
  const hide = (target, name, value) =>
    defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true });
  const show = (target, name, value) =>
    defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true, enumerable: true });
  // Converts a value to WebIDL's USVString: replaces unpaired surrogates, and throws for a symbol.
  const scalarText = (value) => wellFormed(`${value}`);

  // ---- lists of names and values: Headers and URLSearchParams ----

  // Calls `add` with every pair of `init`, which is a record or iterates over pairs.
  function eachPair(init, what, add) {
    if (typeof init !== "object" && typeof init !== "function") throw new TypeError(`${what} can't be made of ${typeof init}`);
    if (init[iterator] === undefined) {
      const names = keys(init);
      for (let i = 0; i < names.length; i++) add(names[i], init[names[i]]);
      return;
    }
    for (const pair of init) {
      if (pair === null || typeof pair !== "object" || pair.length !== 2) throw new TypeError(`${what} needs pairs of a name and a value`);
      add(pair[0], pair[1]);
    }
  }

  // The iterators of both classes, over the pairs as they are at each step.
  function* walk(pairs, take) {
    for (let i = 0; i < pairs.length; i += 2) yield take === 2 ? [pairs[i], pairs[i + 1]] : pairs[i + take];
  }

  function find(pairs, name) {
    for (let i = 0; i < pairs.length; i += 2) if (pairs[i] === name) return i;
    return -1;
  }

  // Removes every pair of that name, and of that value if given, from index `from` on.
  function remove(pairs, name, value = undefined, from = 0) {
    let kept = from;
    for (let i = from; i < pairs.length; i += 2) {
      if (pairs[i] === name && (value === undefined || pairs[i + 1] === value)) continue;
      pairs[kept] = pairs[i];
      pairs[kept + 1] = pairs[i + 1];
      kept += 2;
    }
    pairs.length = kept;
  }

  function push(pairs, name, value) {
    const end = pairs.length;
    pairs[end] = name;
    pairs[end + 1] = value;
  }

  // Sorts pairs by name; pairs of the same name keep their order.
  function sortByName(pairs) {
    for (let i = 2; i < pairs.length; i += 2) {
      const name = pairs[i], value = pairs[i + 1];
      let at = i;
      for (; at > 0 && pairs[at - 2] > name; at -= 2) {
        pairs[at] = pairs[at - 2];
        pairs[at + 1] = pairs[at - 1];
      }
      pairs[at] = name;
      pairs[at + 1] = value;
    }
    return pairs;
  }

  // A header field's name in lower case, and its value without surrounding white space. Invalid ones are rejected here,
  // where a program can still catch the error.
  function fieldName(name) {
    const text = `${name}`;
    return native.token(text) ?? refuseField("name", text);
  }
  function fieldValue(value) {
    const text = `${value}`;
    return native.field(text) ?? refuseField("value", text);
  }
  function refuseField(part, text) {
    throw new TypeError(`this is not a valid ${part} of a header field: ${stringify(text)}`);
  }

  let headerPairs, addReceived, isHeaders;
  class Headers {
    #pairs = list();
    static {
      isHeaders = (value) => #pairs in value;
      headerPairs = (value) => value.#pairs;
      addReceived = (headers, name, value) => headers.#append(name, value);
    }
    constructor(init = undefined) {
      if (init === undefined || init === null) return;
      const add = (name, value) => this.#add(name, value);
      if (typeof init === "object" && #pairs in init) for (let i = 0; i < init.#pairs.length; i += 2) push(this.#pairs, init.#pairs[i], init.#pairs[i + 1]);
      else eachPair(init, "Headers", add);
    }
    #append(name, value) {
      const at = find(this.#pairs, name);
      if (at < 0 || name === "set-cookie") push(this.#pairs, name, value);
      else this.#pairs[at + 1] += `, ${value}`;
    }
    #add(name, value) {
      this.#append(fieldName(name), fieldValue(value));
    }
    append(name, value) {
      this.#add(name, value);
    }
    delete(name) {
      remove(this.#pairs, fieldName(name));
    }
    get(name) {
      const key = fieldName(name);
      let text = null;
      for (let i = 0; i < this.#pairs.length; i += 2)
        if (this.#pairs[i] === key) text = text === null ? this.#pairs[i + 1] : `${text}, ${this.#pairs[i + 1]}`;
      return text;
    }
    getSetCookie() {
      const found = [];
      for (let i = 0; i < this.#pairs.length; i += 2) if (this.#pairs[i] === "set-cookie") show(found, found.length, this.#pairs[i + 1]);
      return found;
    }
    has(name) {
      return find(this.#pairs, fieldName(name)) >= 0;
    }
    set(name, value) {
      const key = fieldName(name), text = fieldValue(value);
      remove(this.#pairs, key);
      push(this.#pairs, key, text);
    }
    forEach(callback, thisArg) {
      const pairs = sortByName(this.#pairs);
      for (let i = 0; i < pairs.length; i += 2) apply(callback, thisArg, [pairs[i + 1], pairs[i], this]);
    }
    keys() {
      return walk(sortByName(this.#pairs), 0);
    }
    values() {
      return walk(sortByName(this.#pairs), 1);
    }
    entries() {
      return walk(sortByName(this.#pairs), 2);
    }
  }
  hide(Headers.prototype, iterator, Headers.prototype.entries);

  // Parses `name: value` lines, which the gateway wrote.
  function parseHeaders(text) {
    const headers = new Headers();
    for (let at = 0, end; (end = indexOf(text, "\r\n", at)) >= 0; at = end + 2) {
      const line = slice(text, at, end);
      const colon = indexOf(line, ":");
      if (colon > 0) addReceived(headers, slice(line, 0, colon), trim(slice(line, colon + 1)));
    }
    return headers;
  }
  const addHeader = uncurry(Headers.prototype.append);

  let formText;
  class URLSearchParams {
    #pairs = list();
    static {
      formText = (value) => (typeof value === "object" && value !== null && #pairs in value ? value.#text() : undefined);
    }
    constructor(init = "") {
      const add = (name, value) => push(this.#pairs, scalarText(name), scalarText(value));
      if (typeof init === "object" && init !== null && #pairs in init) for (let i = 0; i < init.#pairs.length; i += 2) add(init.#pairs[i], init.#pairs[i + 1]);
      else if (typeof init === "object" && init !== null) eachPair(init, "URLSearchParams", add);
      else this.#parse(scalarText(init));
    }
    #parse(text) {
      for (let at = text[0] === "?" ? 1 : 0, end; at < text.length; at = end + 1) {
        end = indexOf(text, "&", at);
        if (end < 0) end = text.length;
        const part = slice(text, at, end);
        const equals = indexOf(part, "=");
        if (part === "") continue;
        if (equals < 0) push(this.#pairs, native.formDecode(part), "");
        else push(this.#pairs, native.formDecode(slice(part, 0, equals)), native.formDecode(slice(part, equals + 1)));
      }
    }
    #text() {
      let text = "";
      for (let i = 0; i < this.#pairs.length; i += 2)
        text += `${i ? "&" : ""}${native.formEncode(this.#pairs[i])}=${native.formEncode(this.#pairs[i + 1])}`;
      return text;
    }
    get size() {
      return this.#pairs.length / 2;
    }
    append(name, value) {
      push(this.#pairs, scalarText(name), scalarText(value));
    }
    delete(name, value = undefined) {
      remove(this.#pairs, scalarText(name), value === undefined ? undefined : scalarText(value));
    }
    get(name) {
      const at = find(this.#pairs, scalarText(name));
      return at < 0 ? null : this.#pairs[at + 1];
    }
    getAll(name) {
      const wanted = scalarText(name), found = [];
      for (let i = 0; i < this.#pairs.length; i += 2) if (this.#pairs[i] === wanted) show(found, found.length, this.#pairs[i + 1]);
      return found;
    }
    has(name, value = undefined) {
      const wanted = scalarText(name), text = value === undefined ? undefined : scalarText(value);
      for (let i = 0; i < this.#pairs.length; i += 2) if (this.#pairs[i] === wanted && (text === undefined || this.#pairs[i + 1] === text)) return true;
      return false;
    }
    set(name, value) {
      const wanted = scalarText(name), text = scalarText(value), at = find(this.#pairs, wanted);
      if (at < 0) return push(this.#pairs, wanted, text);
      this.#pairs[at + 1] = text;
      remove(this.#pairs, wanted, undefined, at + 2);
    }
    sort() {
      const pairs = list();
      for (let i = 0; i < this.#pairs.length; i += 2) pairs[i / 2] = { name: this.#pairs[i], value: this.#pairs[i + 1] };
      sort(pairs, (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
      for (let i = 0; i < pairs.length; i++) {
        this.#pairs[2 * i] = pairs[i].name;
        this.#pairs[2 * i + 1] = pairs[i].value;
      }
    }
    toString() {
      return this.#text();
    }
    forEach(callback, thisArg) {
      for (let i = 0; i < this.#pairs.length; i += 2) apply(callback, thisArg, [this.#pairs[i + 1], this.#pairs[i], this]);
    }
    keys() {
      return walk(this.#pairs, 0);
    }
    values() {
      return walk(this.#pairs, 1);
    }
    entries() {
      return walk(this.#pairs, 2);
    }
  }
  hide(URLSearchParams.prototype, iterator, URLSearchParams.prototype.entries);

  // ---- Response ----

  // Returns the data of a body to be sent (text, a copy of its bytes, or null) and its content type or undefined.
  function bodyOf(body, what) {
    if (body === undefined || body === null) return { __proto__: null, data: null };
    if (typeof body === "string") return { __proto__: null, data: body, type: "text/plain; charset=utf-8" };
    const bytes = native.bytes(body);
    if (bytes !== undefined) return { __proto__: null, data: bytes };
    const form = formText(body);
    if (form !== undefined) return { __proto__: null, data: form, type: "application/x-www-form-urlencoded" };
    throw new TypeError(`the body of ${what} has to be text, bytes or URLSearchParams, not ${isArray(body) ? "an array" : `a value of type ${typeof body}`}: use ${what === "a Response" ? "Response.json(value)" : "JSON.stringify(value)"}`);
  }

  const READ_JSON = 0, READ_TEXT = 1, READ_BYTES = 2;
  const RECEIVED = Symbol("received");
  // The headers of a service's response that the answer may contain.
  const PASSED_ON = create(null);
  for (const name of ["cache-control", "content-disposition", "content-language", "content-type", "etag", "expires", "last-modified", "link", "location", "retry-after"]) PASSED_ON[name] = true;
  let unpackResponse, received, isResponse;
  class Response {
    #status;
    #headers;
    #data = null; // of a response that the program created
    #handle = 0; // of a response from a service, until its body is read
    #received = false;
    #used = false;
    static {
      received = (handle, status, headersOnly) => {
        const response = new Response(RECEIVED);
        response.#handle = handle;
        response.#status = status;
        response.#received = true;
        return headersOnly ? response.#head() : response;
      };
      isResponse = (value) => #status in value;
      unpackResponse = (value) => (#status in value ? value.#unpack() : undefined);
    }
    constructor(body = null, init = undefined) {
      if (body === RECEIVED) return;
      const { status = 200, headers = undefined } = init ?? NONE;
      this.#status = Number(status);
      if (!(this.#status >= 200 && this.#status <= 599)) throw new RangeError(`a Response's status has to be 200 to 599, not ${status}`);
      const { data, type } = bodyOf(body, "a Response");
      const bodiless = this.#status === 204 || this.#status === 205 || this.#status === 304;
      if (bodiless && data !== null) throw new TypeError(`a Response of status ${status} can't have a body: pass null`);
      this.#data = data;
      this.#headers = new Headers(headers);
      if (type !== undefined && find(headerPairs(this.#headers), "content-type") < 0) addHeader(this.#headers, "content-type", type);
    }
    static json(value, init = undefined) {
      const text = native.json(value);
      if (text === undefined) throw new TypeError("the value has no JSON form");
      const headers = new Headers(init?.headers);
      if (find(headerPairs(headers), "content-type") < 0) addHeader(headers, "content-type", "application/json");
      return new Response(text, { __proto__: null, status: init?.status, headers });
    }
    #head() {
      return (this.#headers ??= parseHeaders(native.headers(this.#handle)));
    }
    // Reads the body, which is possible once.
    #read(kind) {
      if (this.#used) throw new TypeError("the body of this Response was read already");
      this.#used = true;
      if (this.#received) {
        this.#head();
        return native.read(this.#handle, kind);
      }
      const bytes = native.bytes(this.#data) ?? native.encode(this.#data ?? "");
      if (kind === READ_BYTES) return bytes;
      const string = native.decode(bytes, false, false);
      return kind === READ_JSON ? parse(string) : string;
    }
    #unpack() {
      const parts = list();
      parts[0] = this.#status;
      parts[1] = this.#received;
      parts[2] = this.#received ? this.#read(READ_BYTES) : this.#data;
      const pairs = headerPairs(this.#head());
      for (let i = 0; i < pairs.length; i += 2) if (!this.#received || pairs[i] in PASSED_ON) push(parts, pairs[i], pairs[i + 1]);
      return parts;
    }
    get status() {
      return this.#status;
    }
    get ok() {
      return this.#status >= 200 && this.#status <= 299;
    }
    get headers() {
      return this.#head();
    }
    get bodyUsed() {
      return this.#used;
    }
    async json() {
      return this.#read(READ_JSON);
    }
    async text() {
      return this.#read(READ_TEXT);
    }
    async bytes() {
      return this.#read(READ_BYTES);
    }
    async arrayBuffer() {
      return bufferOf(this.#read(READ_BYTES));
    }
  }

  // Returns the `init` of a fetch as [body, method, name, value, name, value, ...], for C.
  function fetchParts(init) {
    const { method = "GET", headers = undefined, body = undefined } = init ?? NONE;
    const verb = native.token(`${method}`);
    if (verb === undefined) throw new TypeError(`this is not a valid method: ${stringify(`${method}`)}`);
    const { data, type } = bodyOf(body, "a request");
    const all = new Headers(headers);
    if (type !== undefined && find(headerPairs(all), "content-type") < 0) addHeader(all, "content-type", type);
    const parts = list();
    parts[0] = typeof data === "string" ? native.encode(data) : data;
    parts[1] = upperCase(verb);
    const pairs = headerPairs(all);
    for (let i = 0; i < pairs.length; i++) parts[2 + i] = pairs[i];
    return parts;
  }

  // Throws for an object whose JSON is `{}` although it has data, and says what to use instead. C calls it for such
  // objects that aren't plain.
  function checkEmpty(value) {
    if (typeof value.toJSON === "function") return;
    if (isError(value)) throw new TypeError("an Error has no JSON form: use String(error)");
    if (isResponse(value)) throw new TypeError("a Response has no JSON form: await its json(), text() or bytes()");
    if (isHeaders(value)) throw new TypeError("Headers have no JSON form: use Object.fromEntries(headers)");
    if (formText(value) !== undefined) throw new TypeError("URLSearchParams have no JSON form: use String(params)");
    if (value[iterator] !== undefined) throw new TypeError("an iterable object has no JSON form: use [...iterable]");
  }

  // ---- services ----

  class ServiceError extends Error {}
  hide(ServiceError.prototype, "name", "ServiceError");

  // Turns `error` into a ServiceError. It was created when the call began, and so has that stack.
  function serviceError(error, service, method, path, status, body, reason) {
    let message = `${service} answered ${status} to ${method} ${path}`;
    if (reason === "not-json") message += ", with a body that is not JSON";
    else if (reason === "too-deep") message += ", with a body that is nested too deeply";
    else if (reason === "unreachable" || reason === "timeout" || reason === "broken") message = `${service} did not answer ${method} ${path}: ${reason}`;
    else if (reason !== undefined) message = `${method} ${path} was not sent to ${service}: ${reason}`;
    setPrototypeOf(error, ServiceError.prototype);
    hide(error, "message", message);
    show(error, "service", service);
    show(error, "method", method);
    show(error, "path", path);
    show(error, "status", status);
    show(error, "body", body);
    show(error, "reason", reason);
    return error;
  }

  // The prototype of `services`: reading an unknown service throws an error that lists the known ones.
  const unknownService = new Proxy(create(null), {
    __proto__: null,
    get(_, name, services) {
      if (typeof name !== "string" || name === "then" || name === "toJSON" || hasOwn(OBJECT, name)) return undefined;
      const known = ownKeys(services);
      let names = "";
      for (let i = 0; i < known.length; i++) names += `${i ? ", " : ""}${String(known[i])}`;
      throw new TypeError(`there is no service '${name}' here: this route has ${names || "none"}`);
    },
  });
  const OBJECT = create(null);
  for (const name of Object.getOwnPropertyNames(Object.prototype)) OBJECT[name] = true;

  // ---- text, console, crypto, performance ----

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text = "") {
      return native.encode(String(text));
    }
  }

  class TextDecoder {
    #fatal;
    #keepMark;
    constructor(label = "utf-8", options = undefined) {
      const name = lowerCase(trim(String(label)));
      if (name !== "utf-8" && name !== "utf8") throw new RangeError(`TextDecoder only supports utf-8, not ${label}`);
      this.#fatal = !!options?.fatal;
      this.#keepMark = !!options?.ignoreBOM;
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#keepMark;
    }
    decode(bytes = undefined, options = undefined) {
      if (options?.stream) throw new TypeError("TextDecoder does not support streaming here");
      if (bytes === undefined) return "";
      const text = native.decode(bytes, this.#fatal, this.#keepMark);
      if (text === undefined) throw new TypeError("the bytes are not UTF-8");
      return text;
    }
  }

  // Returns the text that console shows for a value.
  function inspect(value) {
    if (typeof value === "string") return value;
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "function") return `[function ${value.name || "(anonymous)"}]`;
    if (value === null || typeof value !== "object") return String(value);
    try {
      if (value instanceof Error) return `${value}\n${apply(stackOf, value, []) ?? ""}`;
      return stringify(value) ?? String(value);
    } catch {
      return "[object without JSON form]";
    }
  }

  function write() {
    let line = "";
    for (let i = 0; i < arguments.length; i++) line += `${i ? " " : ""}${inspect(arguments[i])}`;
    native.log(line);
  }

  const crypto = {
    getRandomValues(view) {
      const length = native.fill(view);
      if (length === undefined) throw new TypeError("getRandomValues fills a typed array of integers");
      return view;
    },
    randomUUID: () => native.uuid(),
  };

  let origin;
  const performance = {
    // Milliseconds since the first call in this run.
    now() {
      const time = native.clock();
      return time - (origin ??= time);
    },
  };

  const console = {};
  for (const name of ["debug", "error", "info", "log", "warn"]) show(console, name, write);
  for (const type of [Headers, Response, ServiceError, TextDecoder, TextEncoder, URLSearchParams]) {
    hide(globalThis, type.name, type);
    defineProperty(type.prototype, toStringTag, { __proto__: null, value: type.name, configurable: true });
  }
  delete globalThis.SharedArrayBuffer; // there are no other threads to share with
  hide(globalThis, "console", console);
  hide(globalThis, "crypto", crypto);
  hide(globalThis, "performance", performance);

  // The functions that C calls, in the order of HOOK_* in host.h.
  return [
    (value, formOnly) => (formOnly ? formText(value) : unpackResponse(value)),
    received,
    fetchParts,
    serviceError,
    unknownService,
    stackOf,
    checkEmpty,
  ];
})
