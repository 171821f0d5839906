// Runs a query in Node, replayed from a recording: `services`, the clock and random numbers are the recorded ones; the
// rest is Node, with its debugger and its console.
//
//     node [--inspect-brk] mock.mjs RECORDING PROGRAM.js
//
// `orfa query debug` does this, and also runs TypeScript. The program's file is not changed; the answer goes to the
// standard output. A changed program must make the same calls in the same order; if it leaves its recording, it stops
// at a `debugger` statement, and ends.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [recordingFile, programFile, programName = programFile] = process.argv.slice(2);
const utf8 = new TextEncoder();
const { setImmediate, Date: RealDate } = globalThis;

// Ends a run without an answer. A debugger stops here.
function stop(why) {
  debugger;
  console.error(`orfa: ${why}`);
  process.exit(1);
}

if (programFile === undefined) stop("run `node mock.mjs RECORDING PROGRAM.js`");

// ---- the recording ----

function readRecording() {
  let recording;
  try {
    recording = JSON.parse(readFileSync(recordingFile, "utf8"));
  } catch (error) {
    stop(`${recordingFile} is not a recording: ${error.message}`);
  }
  if (recording?.version === undefined) stop(`${recordingFile} is not a recording: it has no \`version\``);
  if (recording.version !== 1) stop(`${recordingFile} has version ${recording.version}; this supports version 1`);
  return recording;
}

const recording = readRecording();
const bytes = (data) => (typeof data === "string" ? Buffer.from(data) : Buffer.from(data.base64, "base64"));
const callsOf = (name) => recording.calls.filter((call) => call.function === name);
const clocks = callsOf("clock");
const randoms = callsOf("random");
const requests = callsOf("http");
const waits = callsOf("Future_wait").filter((call) => !call.with.all);

function stopAsRecorded() {
  const { problem } = recording.end;
  stop(problem ? `the recorded run ended here: ${problem.detail} (${problem.code})` : "the recorded run made no more calls");
}

// ---- clock and random numbers ----

let time = 0;
const clock = () => (time = clocks.shift()?.result ?? time);

function random(length) {
  const call = randoms.shift() ?? stopAsRecorded();
  if (call.with.len !== length) stop(`the program asks for ${length} random bytes, where the recording has ${call.with.len}`);
  return bytes(call.data);
}

let state = 0n;
function mathRandom() {
  const bits = (value) => BigInt.asUintN(64, value);
  while (state === 0n) state = random(8).readBigUInt64LE();
  state ^= state >> 12n;
  state = bits(state ^ (state << 25n));
  state ^= state >> 27n;
  return Number(bits(state * 0x2545f4914f6cdd1dn) >> 11n) * 2 ** -53;
}

function randomUUID() {
  const raw = random(16);
  raw[6] = (raw[6] & 0x0f) | 0x40;
  raw[8] = (raw[8] & 0x3f) | 0x80;
  return raw.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function getRandomValues(view) {
  Buffer.from(view.buffer, view.byteOffset, view.byteLength).set(random(view.byteLength));
  return view;
}

let origin;
function now() {
  const time = clock();
  return time - (origin ??= time);
}

function setUpGlobals() {
  const put = (target, name, value) => Object.defineProperty(target, name, { value, writable: true, configurable: true });
  for (const name of ["debug", "info", "log"]) console[name] = console.error;
  put(RealDate, "now", clock);
  put(Math, "random", mathRandom);
  put(globalThis, "crypto", { getRandomValues, randomUUID });
  put(globalThis, "performance", { now });
  put(globalThis, "ServiceError", ServiceError);
  put(globalThis, "Date", new Proxy(RealDate, {
    construct: (target, parts, self) => Reflect.construct(target, parts.length ? parts : [clock()], self),
    apply: () => new RealDate(clock()).toString(),
  }));
}

// ---- the URL of a call ----

const IN_URL = "%/?:@!$&'()*+,;=[]";

function encode(text, keep = "") {
  const spelt = (byte) => {
    const letter = String.fromCharCode(byte);
    const stays = /[\w\-.~]/.test(letter) || keep.includes(letter);
    return stays ? letter : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  };
  return Array.from(utf8.encode(text), spelt).join("");
}

function scalar(value, name) {
  if (value instanceof RealDate) return encode(value.toISOString());
  if (["string", "number", "boolean", "bigint"].includes(typeof value)) return encode(String(value));
  throw new TypeError(`the parameter '${name}' has to be text, a number, a boolean, a Date or an array of them`);
}

function checkPart(text, name) {
  if (["", ".", ".."].includes(text)) throw new TypeError(`{${name}} in the path can't be filled with '${text}'`);
  return text;
}

// Converts the values of a parameter, each passed through `check`.
function parameter(value, name, check = (text) => text) {
  if (!Array.isArray(value)) return check(scalar(value, name), name);
  return check(Array.from(value, (item) => check(scalar(item, name), name)).join(","), name);
}

// Rejects an empty list, or an empty item: a service may take it to mean everything, and change all of it.
function checkList(text, value, name) {
  if (!Array.isArray(value)) return;
  const fault = text === "" ? "an empty list" : /^,|,,|,$/.test(text) ? "a list with an empty text in it" : undefined;
  if (fault) throw new TypeError(`the parameter '${name}' is ${fault}, which a call that changes something can't have`);
}

// Whether a parameter is absent, and so left out. Rejects an absent one of a change.
function isAbsent(value, name, changes) {
  if (value !== undefined && value !== null) return false;
  if (changes) throw new TypeError(`the parameter '${name}' is ${value}, which a call that changes something can't have: don't name it to leave it out`);
  return true;
}

const isPlain = (value) => typeof value === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(value));

function checkPath(path) {
  if (typeof path !== "string" || path[0] !== "/") throw new TypeError("the path has to be text that begins with '/'");
}

function makeUrl(service, path, params, changes) {
  checkPath(path);
  const form = params instanceof URLSearchParams ? String(params) : undefined;
  const given = form === undefined ? (params ?? {}) : {};
  if (!isPlain(given)) throw new TypeError("params has to be a plain object such as { limit: 8 }, or a URLSearchParams");
  const open = new Map(Object.entries(given));
  const filled = path.split(/(\{[\w\-.~$]+\})/).map((part, index) => {
    if (index % 2 === 0) return encode(part, IN_URL);
    const name = part.slice(1, -1);
    if (!Object.hasOwn(given, name)) throw new TypeError(`the path needs {${name}}, and params has no '${name}'`);
    open.delete(name);
    return parameter(given[name], name, checkPart);
  });
  let url = `http://${service}${filled.join("")}`;
  const add = (text) => (url += `${url.includes("?") ? "&" : "?"}${text}`);
  for (const [name, value] of open) {
    if (isAbsent(value, name, changes)) continue;
    const text = parameter(value, name);
    if (changes) checkList(text, value, name);
    add(`${encode(name)}=${text}`);
  }
  if (form) add(form);
  return url;
}

// ---- services ----

class ServiceError extends Error {
  constructor(call, status, body, reason) {
    const { service, method, path } = call;
    let message = `${service} answered ${status} to ${method} ${path}`;
    if (reason === "not-json") message += ", with a body that is not JSON";
    else if (reason !== undefined) message = `${service} did not answer ${method} ${path}: ${reason}`;
    super(message);
    Object.assign(this, { service, method, path, status, body, reason });
  }
}
Object.defineProperty(ServiceError.prototype, "name", { value: "ServiceError" });

// Whether the program's function was called, and the calls in flight, by handle.
let running = false;
const pending = new Map();

const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);
const toBytes = (value) => (ArrayBuffer.isView(value) ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : Buffer.from(value));

function bodyBytes(body) {
  if (body === undefined) return Buffer.alloc(0);
  if (isBytes(body)) return toBytes(body);
  const text = body instanceof URLSearchParams ? String(body) : JSON.stringify(body);
  if (text === undefined) throw new TypeError("a function or symbol can't be sent as a body");
  return Buffer.from(text);
}

function fetchBytes(body) {
  if (body === undefined || body === null) return Buffer.alloc(0);
  return isBytes(body) ? toBytes(body) : Buffer.from(String(body));
}

// Takes the next recorded call, which must be this one.
function begin(service, method, url, body, kind) {
  const recorded = requests.shift() ?? stopAsRecorded();
  const asked = `${method} ${url} ${body}`;
  const had = `${recorded.with.method} ${bytes(recorded.with.url)} ${bytes(recorded.with.body)}`;
  if (asked !== had) stop(`the program calls ${asked.trim()}, where the recording has ${had.trim()}`);
  if (recorded.result === undefined) stopAsRecorded();
  const call = { service, method, path: url.slice(`http://${service}`.length), kind };
  return new Promise((resolve, reject) => pending.set(recorded.result, { call, resolve, reject }));
}

function headersOf(answer) {
  const lines = bytes(answer.headers).toString("latin1").split("\r\n").filter((line) => line !== "");
  return new Headers(lines.map((line) => line.split(/: (.*)/s, 2)));
}

// Creates a response whose body is read without further turns of the event loop, unlike Node's own, as in a gateway.
function received(answer, body) {
  const empty = body.length === 0 || [204, 205, 304].includes(answer.status);
  const response = new Response(empty ? null : body, { status: answer.status, headers: headersOf(answer) });
  const text = () => new TextDecoder().decode(body);
  return Object.assign(response, {
    json: async () => JSON.parse(text()),
    text: async () => text(),
    bytes: async () => new Uint8Array(body),
    arrayBuffer: async () => new Uint8Array(body).buffer,
  });
}

// Returns the body as a value: JSON and text by content type, null if it is empty, else a Uint8Array.
function valueOf(answer) {
  const body = bytes(answer.body);
  if (body.length === 0) return null;
  const type = (headersOf(answer).get("content-type") ?? "").split(";")[0].trim().toLowerCase();
  const text = () => new TextDecoder().decode(body);
  if (type === "application/json" || type.endsWith("+json")) return JSON.parse(text());
  return type.startsWith("text/") ? text() : new Uint8Array(body);
}

const REASONS = { "-7": "unreachable", "-8": "timeout" };

function outcome(call, { answer, error }) {
  if (answer === undefined) throw new ServiceError(call, 0, null, REASONS[error] ?? "broken");
  const good = answer.status >= 200 && answer.status < 300;
  if (call.kind === "fetch") return received(answer, bytes(answer.body));
  if (call.kind === "head" && good) return headersOf(answer);
  let value = null;
  try {
    if (call.kind !== "head") value = valueOf(answer);
  } catch {
    throw new ServiceError(call, answer.status, null, good ? "not-json" : undefined);
  }
  if (!good) throw new ServiceError(call, answer.status, value);
  return value;
}

// Settles the call that ended next in the recorded run.
function settleNext() {
  const wait = waits.shift();
  if (wait?.result === undefined) stopAsRecorded();
  const handle = wait.with.futures[wait.result];
  const { call, resolve, reject } = pending.get(handle) ?? stop("the program did not make the call that ended next in the recording");
  pending.delete(handle);
  try {
    resolve(outcome(call, recording.responses[handle]));
  } catch (error) {
    reject(error);
  }
}

// Waits for a promise. Whenever no other work is left, the next call ends.
async function settled(promise) {
  let over = false;
  promise.then(() => (over = true), () => (over = true));
  while (!over) {
    await new Promise((next) => setImmediate(next));
    if (over) break;
    if (pending.size > 0) settleNext();
    else if (running) stop("the program waits for a promise that can never settle: no call is under way");
  }
  return promise;
}

// Settles the calls that may change something and are still in flight when the program has returned.
async function settleChanges() {
  const isChange = ({ call }) => !["GET", "HEAD"].includes(call.method);
  while ([...pending.values()].some(isChange)) {
    settleNext();
    await new Promise((next) => setImmediate(next));
  }
}

function service(name) {
  const urlOf = (method, path, params) => makeUrl(name, path, params, !["GET", "HEAD"].includes(method));
  const bare = (method) => (path, params) => begin(name, method, urlOf(method, path, params), bodyBytes(), method.toLowerCase());
  const writes = (method) => (path, body, params) => begin(name, method, urlOf(method, path, params), bodyBytes(body), method.toLowerCase());
  const fetch = (path, { method = "GET", body } = {}) => {
    checkPath(path);
    return begin(name, String(method).toUpperCase(), `http://${name}${encode(path, IN_URL)}`, fetchBytes(body), "fetch");
  };
  const [get, head, remove] = ["GET", "HEAD", "DELETE"].map(bare);
  const [post, put, patch] = ["POST", "PUT", "PATCH"].map(writes);
  return { get, head, post, put, patch, delete: remove, fetch };
}

function makeServices() {
  const unknown = (_, name, services) => {
    if (typeof name !== "string" || ["then", "toJSON"].includes(name) || name in Object.prototype) return undefined;
    throw new TypeError(`there is no service '${name}' here: this route has ${Object.keys(services).join(", ") || "none"}`);
  };
  const services = Object.create(new Proxy(Object.create(null), { get: unknown }));
  for (const name of recording.services) services[name] = service(name);
  return services;
}

// ---- the program ----

// Imports the program under its own name, so that breakpoints in its file work.
async function load() {
  const source = readFileSync(programFile, "utf8");
  const named = `${source}\n//# sourceURL=${pathToFileURL(resolve(programName))}`;
  return import(`data:text/javascript;base64,${Buffer.from(named).toString("base64")}`);
}

function inputFor(mode = "json") {
  const input = bytes(recording.input);
  if (mode === "bytes") return new Uint8Array(input);
  if (mode === "text") return new TextDecoder().decode(input);
  return input.length === 0 ? {} : JSON.parse(new TextDecoder().decode(input));
}

// Converts the program's return value to an answer.
async function answerOf(value) {
  if (value === undefined || value === null) return { status: 204, body: Buffer.alloc(0) };
  if (typeof value === "string") return { status: 200, body: Buffer.from(value) };
  if (isBytes(value)) return { status: 200, body: toBytes(value) };
  if (value instanceof Response) return { status: value.status, body: Buffer.from(await value.arrayBuffer()) };
  const text = ["function", "symbol", "bigint"].includes(typeof value) ? undefined : JSON.stringify(value);
  return { status: 200, body: Buffer.from(text ?? stop(`the program returned a ${typeof value}, which can't be an answer`)) };
}

function compare({ status, body }) {
  const recorded = recording.end.answer;
  const same = recorded?.status === status && recorded.sha256 === createHash("sha256").update(body).digest("hex");
  console.error(`orfa: status ${status}, ${same ? "as" : "otherwise than"} the recorded run`);
}

setUpGlobals();
const program = await settled(load());
running = true;
const returned = await settled((async () => program.default(inputFor(program.input), makeServices()))());
await settleChanges();
const answer = await answerOf(returned);
process.stdout.write(answer.body);
compare(answer);
