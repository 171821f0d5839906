// A fake gateway that responds as a test requires, and records the requests.
import { createServer } from "node:http";
import { webcrypto } from "node:crypto";

// Node 18 has it behind a flag; browsers and newer versions of Node have it by default.
globalThis.crypto ??= webcrypto;

/**
 * Handles each request by `answer(request, response)`, where the request has `text` and `bytes`. If the function
 * returns `{ status, headers, body }`, this is sent; an object as the body is sent as JSON.
 */
export async function gateway(test, answer) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    request.bytes = Buffer.concat(pieces);
    request.text = request.bytes.toString();
    requests.push(request);
    const said = await answer(request, response);
    if (said) send(response, said);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}/query`, requests };
}

function send(response, { status = 200, headers = {}, body = "" }) {
  const json = typeof body === "object" && !(body instanceof Uint8Array);
  response.writeHead(status, { ...(json && { "content-type": "application/json" }), ...headers });
  response.end(json ? JSON.stringify(body) : body);
}

/** A problem document like those of the gateway. */
export function problem(status, code, members = {}, headers = {}) {
  const body = { type: `urn:orfa:error:${code}`, title: code, status, code, detail: `about ${code}`, ...members };
  return { status, headers: { "content-type": "application/problem+json", ...headers }, body };
}

/** The problem of a gateway that doesn't know the named program. */
export function unknown() {
  return problem(409, "program-unknown", { send_program: true });
}

/** An answer with a token. */
export function withToken(token, body = { ok: true }) {
  return { headers: { "orfa-cache": `code;token=:${token}:;did=compiled` }, body };
}

/** A promise and the function that resolves it: `const [done, finish] = signal()`. */
export function signal() {
  let finish;
  const done = new Promise((resolve) => (finish = resolve));
  return [done, finish];
}
