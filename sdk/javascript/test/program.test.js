// Tests of the requests that calls send, and of their answers.
import assert from "node:assert/strict";
import { test } from "node:test";

import { orfa } from "../client.js";
import { gateway, signal } from "./server.js";

const echo = (request) => ({ body: { path: request.url, method: request.method, text: request.text } });
const source = "export default ({ n }) => n";

test("a program is sent after its input, whose length is in ORFA-Input", async (t) => {
  const { url, requests } = await gateway(t, () => ({ body: [1, 2] }));
  const program = orfa(url).program(source);
  assert.deepEqual(await program({ name: "Zoë" }), [1, 2]);
  const [{ method, url: path, headers, text }] = requests;
  assert.deepEqual([method, path, headers["content-type"]], ["POST", "/query", "text/javascript"]);
  assert.equal(headers["orfa-input"], "15", "bytes, not characters");
  assert.equal(text, `{"name":"Zoë"}${source}`);
});

test("without input the body is the program", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  await orfa(url).program(source)();
  assert.deepEqual([requests[0].headers["orfa-input"], requests[0].text], [undefined, source]);
});

test("bytes are sent unchanged, as an input and as a program", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  const module = new Uint8Array([0, 97, 115, 109, 255]);
  await orfa(url).program(module.buffer)(new Uint8Array([9, 7, 8, 9]).subarray(1, 3));
  assert.equal(requests[0].headers["content-type"], "application/wasm");
  assert.deepEqual([...requests[0].bytes], [7, 8, 0, 97, 115, 109, 255]);
});

test("a function is sent as a module that exports it", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  await orfa(url).program(async ({ n }, { up }) => up.get("/json", { n }))();
  assert.equal(requests[0].text, 'export default async ({ n }, { up }) => up.get("/json", { n })');
  const sent = await import(`data:text/javascript,${encodeURIComponent(requests[0].text)}`);
  assert.equal(await sent.default({ n: 3 }, { up: { get: (path, { n }) => path + n } }), "/json3");
});

test("invalid programs and inputs are rejected before anything is sent", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  assert.throws(() => orfa(url).program({}), { name: "TypeError", message: /a function, a text, or the bytes/ });
  assert.throws(() => orfa(url).program((() => 1).bind(null)), { name: "TypeError", message: /bound/ });
  await assert.rejects(orfa(url).program(source)(() => 1), { name: "TypeError", message: /a function can't be an input/ });
  assert.equal(requests.length, 0);
});

test("the type, the signature and the safe method are sent", async () => {
  const sent = [];
  const fetch = async (url, init) => (sent.push({ url, ...init }), new Response("1"));
  const options = { type: "text/typescript", safe: true, signature: ':c2ln:;keyid="shop"\n' };
  await orfa("https://api.example.org/", { fetch, credentials: "include" }).program(source, options)();
  const [{ url, method, headers, credentials }] = sent;
  assert.deepEqual([url, method, credentials], ["https://api.example.org/query", "QUERY", "include"]);
  assert.deepEqual(
    [headers.get("content-type"), headers.get("orfa-trust")],
    ["text/typescript", ':c2ln:;keyid="shop"'],
  );
});

test("answers are parsed by their type", async (t) => {
  const answers = {
    "application/json; charset=utf-8": ["[1]", [1]],
    "application/vnd.shop+json": ['{"a":1}', { a: 1 }],
    "text/html": ["<p>", "<p>"],
    "application/octet-stream": ["\x01\x02", new Uint8Array([1, 2])],
    "application/json": ["", null],
  };
  const { url } = await gateway(t, ({ text }) => {
    const type = JSON.parse(text);
    return { headers: { "content-type": type }, body: answers[type][0] };
  });
  const call = orfa(url).stored("echo");
  for (const [type, [, expected]] of Object.entries(answers)) assert.deepEqual(await call(type), expected, type);
});

test("fetch resolves to the response while it streams", async (t) => {
  const [read, readIt] = signal();
  const { url } = await gateway(t, async (request, response) => {
    response.writeHead(404, { "content-type": "text/plain" }).write("first");
    await read;
    response.end("second");
  });
  const response = await orfa(url).program(source).fetch({ n: 1 });
  assert.equal(response.status, 404);
  const pieces = [];
  for await (const piece of response.body) {
    pieces.push(new TextDecoder().decode(piece));
    readIt();
  }
  assert.deepEqual(pieces, ["first", "second"]);
});

test("limits and headers of gateway, program and call are merged, and the most specific wins", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  let made = 0;
  const headers = async () => ({ authorization: `Bearer ${++made}`, "x-shop": "gateway" });
  const program = orfa(url, { headers, limits: { cpu: 10, calls: 1 } }).program(source, {
    headers: { "X-Shop": "program" },
    limits: { calls: 2, memory: undefined },
  });
  await program();
  await program(undefined, { headers: new Headers({ "x-shop": "call" }), limits: { calls: 3 } });
  const seen = requests.map(({ headers }) => [headers.authorization, headers["x-shop"], headers["orfa-limit"]]);
  assert.deepEqual(seen, [["Bearer 1", "program", "cpu=10, calls=2"], ["Bearer 2", "call", "cpu=10, calls=3"]]);
});

test("a stored program is called by name or version, with the input as its body", async (t) => {
  const { url } = await gateway(t, echo);
  const call = orfa(`${url}/`).stored("a b@x");
  assert.deepEqual(await call({ n: 1 }), { path: "/query/a%20b@x", method: "POST", text: '{"n":1}' });
});

test("with GET the input's members become URL parameters", async (t) => {
  const { url, requests } = await gateway(t, echo);
  const call = orfa(url).stored("orders", { method: "GET" });
  const { path, method } = await call({ customer: 7, open: true, name: "a&b", none: null });
  assert.deepEqual([method, path], ["GET", "/query/orders?customer=7&open=true&name=a%26b"]);
  assert.equal((await call()).path, "/query/orders");
  assert.equal(requests[0].headers["content-type"], undefined, "no header that requires a preflight");
  await assert.rejects(call({ ids: [1, 2] }), { name: "TypeError", message: /`ids` can't be a URL parameter/ });
  await assert.rejects(call("text"), { name: "TypeError" });
});
