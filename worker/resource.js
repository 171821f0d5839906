// Resources as values: URL templates, the requests of calls, and the error of a call.

import { types } from "node:util";

import { BYTES, JSON_TEXT, NONE, TEXT } from "./frames.js";
import { stringify } from "./views.js";

const METHODS = ["get", "head", "post", "put", "patch", "delete", "options"];
/**
 * Methods whose call may have an extra argument, the body, after those for the holes of the template: post,
 * put, patch.
 */
const HAS_BODY = [false, false, true, true, true, false, false];

/** Methods that may change something: post, put, patch, delete. */
const CHANGES = [false, false, true, true, true, true, false];

/** The status of a refused call, the same as for a target that is not allowed. */
const REFUSED = 403;

/** A call failed or its response is not 2xx. */
export class ResourceError extends Error {
  /**
   * @param {string} message
   * @param {number} status 0 if there was none
   * @param {Record<string, unknown>} headers
   * @param {unknown} body
   */
  constructor(message, status = 0, headers = {}, body = undefined) {
    super(message);
    this.status = status;
    this.headers = headers;
    this.body = body;
  }
}
Object.defineProperty(ResourceError.prototype, "name", { value: "ResourceError", configurable: true, writable: true });

export class Resource {
  /** @param {string[]} texts the literal parts, with a hole between any two */
  constructor(texts) {
    this.texts = texts;
  }

  /**
   * @param {(string | {v: unknown})[]} pieces two consecutive strings have a hole between them; `v` was
   * computed when the handler ran, and has no holes
   */
  static of(pieces) {
    const texts = [];
    /** @type {string | undefined} */
    let text;
    let wasString = false;
    for (const piece of pieces) {
      const isString = typeof piece === "string";
      if (isString && wasString) {
        texts.push(/** @type {string} */ (text));
        text = "";
      }
      text = (text ?? "") + (isString ? piece : computed(piece.v));
      wasString = isString;
    }
    texts.push(text ?? "");
    return new Resource(texts);
  }

  toJSON() {
    return { pieces: this.texts };
  }

  toString() {
    return this.texts.map((text) => text.replaceAll("@", "@@")).join("@");
  }

  /**
   * Returns the request of a call.
   * @param {number} method
   * @param {unknown[]} values
   */
  request(method, values) {
    const holes = this.texts.length - 1;
    const hasBody = values.length === holes + 1 && HAS_BODY[method];
    if (values.length !== holes && !hasBody) throw new TypeError(this.#miscounted(method, holes, values.length));
    const body = hasBody ? values[holes] : undefined;
    const { kind, content } = bodyOf(body, stringify);
    const [first] = this.texts;
    // `//host` refers to another host, as in any URL.
    if (first[0] !== "/" || first[1] === "/") return { url: this.#filled(method, values), query: "", kind, content };
    return { ...this.#internal(values), kind, content };
  }

  #filled(method, values) {
    const { texts } = this;
    let url = texts[0];
    let isQuery = url.includes("?");
    for (let i = 1; i < texts.length; i++) {
      url += (isQuery ? this.#parameter(method, values, i - 1) : this.#segment(values, i - 1)) + texts[i];
      isQuery ||= texts[i].includes("?");
    }
    return url;
  }

  /** Returns the request of an internal call: parameters keep their types instead of being converted to strings. */
  #internal(values) {
    const { texts } = this;
    let url = "";
    let i = 0;
    for (; ; i++) {
      const mark = texts[i].indexOf("?");
      if (mark >= 0) {
        const query = stringify(this.#parameters(values, i, mark + 1));
        return { url: url + texts[i].slice(0, mark), query };
      }
      url += texts[i];
      if (i + 1 === texts.length) return { url, query: "" };
      url += this.#segment(values, i);
    }
  }

  /**
   * Returns the text for a hole in the query. A service may take an absent value to mean everything, which a change
   * must not.
   */
  #parameter(method, values, i) {
    const value = values[i];
    if (!CHANGES[method] || !isAbsent(value)) return encode(value ?? "");
    const rule = "not undefined, null, an empty list or a list with an empty text in it";
    throw new ResourceError(`argument ${i + 1} of '${this}' can't be in the query of a ${METHODS[method]}: ${rule} (S rule 15)`, REFUSED);
  }

  /**
   * Returns the text for a hole in the path. Anything but a segment, or a part of one, would change the path
   * to that of another resource.
   */
  #segment(values, i) {
    const value = values[i];
    const isText = value !== undefined && value !== null && typeof value !== "object" && typeof value !== "function";
    const text = isText ? textOf(value) : "";
    if (text !== "" && text !== "." && text !== ".." && !/[/\\\p{Cc}]/u.test(text)) return encodeURIComponent(text);
    const rule = "not empty, no `.` or `..`, no slash, backslash or control character";
    throw new ResourceError(`argument ${i + 1} of '${this}' can't be a segment of a path: ${rule} (S rule 15)`, REFUSED);
  }

  /** Returns the parameters, which begin inside a literal part. */
  #parameters(values, i, from) {
    const parameters = Object.create(null);
    let name = new Part();
    let value;
    const add = () => {
      if (value !== undefined) parameter(parameters, name.text(), value.value());
      else if (!name.empty) parameter(parameters, name.text(), "");
      name = new Part();
      value = undefined;
    };
    for (let text = this.texts[i].slice(from); ; text = this.texts[++i]) {
      text.split("#", 1)[0].split("&").forEach((pair, n) => {
        if (n > 0) add();
        const sign = value === undefined ? pair.indexOf("=") : -1;
        if (sign >= 0) {
          name.literal(pair.slice(0, sign));
          value = new Part();
        }
        (value ?? name).literal(pair.slice(sign + 1));
      });
      if (i + 1 === this.texts.length) break;
      (value ?? name).hole(values[i]);
    }
    add();
    return parameters;
  }

  #miscounted(method, holes, count) {
    const wanted = holes === 1 ? "1 argument" : `${holes} arguments`;
    const more = HAS_BODY[method] ? ", and may have one more, the body" : "";
    return `${METHODS[method]} of '${this}' needs ${wanted}, one for each @${more}; it has ${count} (S rule 15)`;
  }
}

/** A parameter's name or value: a single hole alone keeps its value. */
class Part {
  #text = "";
  #value;
  #isHole = false;
  #pieces = 0;

  get empty() {
    return this.#pieces === 0;
  }

  literal(text) {
    if (text === "") return;
    this.#pieces++;
    this.#text += decode(text);
  }

  hole(value) {
    this.#isHole = this.#pieces++ === 0;
    this.#value = value;
    this.#text += textOf(value);
  }

  text() {
    return this.#text;
  }

  value() {
    return this.#isHole && this.#pieces === 1 ? this.#value : this.#text;
  }
}

function parameter(parameters, name, value) {
  if (value === undefined) return;
  const isList = name.endsWith("[]");
  const key = isList ? name.slice(0, -2) : name;
  const before = parameters[key];
  if (before !== undefined) parameters[key] = (Array.isArray(before) ? before : [before]).concat(value);
  else parameters[key] = isList && !Array.isArray(value) ? [value] : value;
}

/** Converts a computed part of a resource's URL to a string. */
function computed(value) {
  const type = typeof value;
  if (type === "string" || type === "number" || type === "boolean" || type === "bigint") return String(value);
  throw new TypeError(`a part of a resource's URL is ${value === null ? "null" : type}, not text (S rule 15)`);
}

/** Whether a value is missing, or a list that is empty or has an empty item. */
function isAbsent(value) {
  if (!Array.isArray(value)) return value === undefined || value === null;
  return value.length === 0 || value.some((item) => String(item ?? "") === "");
}

function encode(value) {
  return encodeURIComponent(textOf(value));
}

function textOf(value) {
  return typeof value === "string" ? value.toWellFormed() : String(value);
}

function decode(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/**
 * Returns the body for a value (rule 13).
 * @param {unknown} value
 * @param {(value: unknown) => string | undefined} json
 * @returns {{ kind: number, content: string | Uint8Array | undefined }}
 */
export function bodyOf(value, json) {
  if (value === undefined) return { kind: NONE, content: undefined };
  if (typeof value === "string") return { kind: TEXT, content: value };
  if (ArrayBuffer.isView(value)) return { kind: BYTES, content: bytesOf(value) };
  if (types.isAnyArrayBuffer(value)) return { kind: BYTES, content: new Uint8Array(new Uint8Array(value)) };
  return { kind: JSON_TEXT, content: json(value) };
}

const [ofTypedArray, ofDataView] = [Object.getPrototypeOf(Uint8Array.prototype), DataView.prototype].map((prototype) =>
  ["buffer", "byteOffset", "byteLength"].map((name) => {
    const { get } = /** @type {PropertyDescriptor} */ (Object.getOwnPropertyDescriptor(prototype, name));
    return (view) => Reflect.apply(/** @type {() => any} */ (get), view, []);
  }),
);

/** Returns a copy of a view's bytes, ignoring overridden members. @param {ArrayBufferView} view */
function bytesOf(view) {
  const [buffer, offset, length] = (types.isDataView(view) ? ofDataView : ofTypedArray).map((get) => get(view));
  return new Uint8Array(new Uint8Array(buffer, offset, length));
}
