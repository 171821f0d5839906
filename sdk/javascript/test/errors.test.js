// Tests of failed calls, and of the errors that callers get.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { orfa, OrfaError } from "../client.js";
import { gateway, problem, signal } from "./server.js";

const source = "export default ({ n }) => n";

/** Returns the error of a call with this answer. */
async function errorOf(t, answer) {
  const { url } = await gateway(t, typeof answer === "function" ? answer : () => answer);
  const error = await orfa(url).program(source)().catch((error) => error);
  assert.ok(error instanceof OrfaError && error instanceof Error, String(error));
  assert.equal(error.name, "OrfaError");
  return error;
}

test("a problem becomes an error with all of its members", async (t) => {
  const calls = [{ service: "order", method: "POST", path: "/orders", status: "no answer" }];
  const members = { hint: "grant more", line: 3, column: 7, console: "here\n", calls, extra: 1 };
  const error = await errorOf(t, problem(422, "limit-cpu", members));
  const { code, status, message, hint, line, column, console, problem: document } = error;
  assert.deepEqual(
    { code, status, message, hint, line, column, console },
    { code: "limit-cpu", status: 422, message: "about limit-cpu", hint: "grant more", line: 3, column: 7, console: "here\n" },
  );
  assert.deepEqual(error.calls, calls);
  assert.equal(document.extra, 1);
  assert.equal(error.response.headers.get("content-type"), "application/problem+json");
  assert.equal(error.retryAfter, undefined);
});

test("Retry-After is converted to milliseconds from seconds or a date", async (t) => {
  const later = (value) => problem(429, "rate-requests", {}, { "retry-after": value });
  assert.equal((await errorOf(t, later("3"))).retryAfter, 3000);
  const { retryAfter } = await errorOf(t, later(new Date(Date.now() + 3_600_000).toUTCString()));
  assert.ok(retryAfter > 3_000_000 && retryAfter <= 3_600_000, String(retryAfter));
  assert.equal((await errorOf(t, later("Sat, 01 Jan 2000 00:00:00 GMT"))).retryAfter, 0);
  assert.equal((await errorOf(t, later("soon"))).retryAfter, undefined);
});

test("an unsuccessful answer that is not a problem becomes `answer-status`", async (t) => {
  const own = await errorOf(t, { status: 404, body: { missing: 7 } });
  assert.deepEqual([own.code, own.status, own.body, own.problem], ["answer-status", 404, { missing: 7 }, undefined]);
  const between = await errorOf(t, { status: 502, headers: { "content-type": "text/html" }, body: "<h1>Bad" });
  assert.deepEqual([between.code, between.status, between.body], ["answer-status", 502, "<h1>Bad"]);
  const bare = await errorOf(t, { status: 400, headers: { "content-type": "application/problem+json" }, body: "null" });
  assert.deepEqual([bare.code, bare.body], ["answer-status", null]);
});

test("invalid JSON and truncated answers have their own codes", async (t) => {
  const type = { "content-type": "application/json" };
  const none = await errorOf(t, { headers: type, body: '{"rows":[1,' });
  assert.deepEqual([none.code, none.status, none.body], ["not-json", 200, '{"rows":[1,']);
  assert.ok(none.cause instanceof SyntaxError);
  const cut = await errorOf(t, (request, response) => {
    response.writeHead(200, { ...type, "content-length": "100" });
    response.write('{"rows":[1,', () => response.destroy());
  });
  assert.deepEqual([cut.code, cut.status], ["broken", 200]);
});

test("a gateway that closes the connection is unreachable", async (t) => {
  const hung = await errorOf(t, (request, response) => void response.destroy());
  assert.deepEqual([hung.code, hung.status, hung.response], ["unreachable", 0, undefined]);
  assert.match(hung.message, /^no answer from 127\.0\.0\.1:/);
  assert.ok(hung.cause);
});

test("a cancelled call rejects with the signal's reason and closes the connection", async (t) => {
  const [gone, isGone] = signal();
  const [came, hasCome] = signal();
  const { url } = await gateway(t, (request, response) => {
    once(response, "close").then(isGone);
    hasCome();
  });
  const cancel = new AbortController();
  const call = orfa(url).program(source)({ n: 1 }, { signal: cancel.signal });
  await came;
  cancel.abort();
  await assert.rejects(call, { name: "AbortError" });
  await gone;
});

test("cancelling an incomplete answer rejects with the signal's reason", async (t) => {
  const [began, hasBegun] = signal();
  const { url } = await gateway(t, (request, response) => {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write("half", hasBegun);
  });
  const cancel = new AbortController();
  const call = orfa(url).program(source)({ n: 1 }, { signal: cancel.signal });
  await began;
  cancel.abort(new Error("the user left"));
  await assert.rejects(call, { message: "the user left" });
});

test("a call with an aborted signal sends nothing", async (t) => {
  const { url, requests } = await gateway(t, () => ({}));
  await assert.rejects(orfa(url).program(source)(1, { signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(requests.length, 0);
});
