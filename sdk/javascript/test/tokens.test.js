// Tests of tokens and hashes that are sent in place of programs, and of the cases in which programs are sent again.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { orfa } from "../client.js";
import { gateway, problem, signal, withToken, unknown } from "./server.js";

const source = "export default ({ n }) => n";
const hash = createHash("sha256").update(source).digest("base64");
const asked = (requests) => requests.map(({ headers, text }) => [headers["orfa-cache"], text]);

/** A store like `localStorage`. */
function store(kept = new Map()) {
  return { kept, getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => void kept.set(key, value) };
}

test("the second call sends the token of the first answer instead of the program", async (t) => {
  const { url, requests } = await gateway(t, () => withToken("b25l"));
  const program = orfa(url).program(source, { signature: ':c2ln:;keyid="shop"' });
  await program({ n: 1 });
  await program({ n: 2 });
  assert.deepEqual(asked(requests), [["code", `{"n":1}${source}`], ["code;token=:b25l:", '{"n":2}']]);
  const [first, second] = requests.map(({ headers }) => headers);
  assert.deepEqual([second["content-type"], second["orfa-input"]], ["text/javascript", undefined]);
  assert.deepEqual([first["orfa-trust"], second["orfa-trust"]], [':c2ln:;keyid="shop"', undefined]);
});

test("a newer token replaces the previous one", async (t) => {
  const tokens = ["b25l", undefined, "dHdv", "dGhyZWU="];
  const { url, requests } = await gateway(t, () => {
    const token = tokens.shift();
    return token ? withToken(token) : { body: {} };
  });
  const program = orfa(url).program(source);
  for (const n of [1, 2, 3, 4]) await program({ n });
  const sent = asked(requests).map(([cache]) => cache);
  assert.deepEqual(sent, ["code", "code;token=:b25l:", "code;token=:b25l:", "code;token=:dHdv:"]);
});

test("the program is sent again, once and transparently, if the gateway no longer knows the token", async (t) => {
  let known = "b25l";
  const { url, requests } = await gateway(t, ({ headers }) => {
    const token = headers["orfa-cache"].match(/token=:(.*):/)?.[1];
    return token && token !== known ? unknown() : withToken(known, { known });
  });
  const program = orfa(url).program(source);
  await program({ n: 1 });
  known = "dHdv";
  assert.deepEqual(await program({ n: 2 }), { known: "dHdv" });
  await program({ n: 3 });
  assert.deepEqual(asked(requests).slice(1), [
    ["code;token=:b25l:", '{"n":2}'],
    ["code", `{"n":2}${source}`],
    ["code;token=:dHdv:", '{"n":3}'],
  ]);
});

test("a gateway that repeatedly asks for the program gets it once per call", async (t) => {
  let calls = 0;
  const { url, requests } = await gateway(t, () => (calls++ ? unknown() : withToken("b25l")));
  const program = orfa(url).program(source);
  await program();
  await assert.rejects(program(), { name: "OrfaError", code: "program-unknown", status: 409 });
  assert.equal(requests.length, 3);
});

/** Gateways that share a secret and take turns, or are chosen by `next`. Each stores the programs that it received. */
function several(names, next) {
  const kept = new Map(names.map((name) => [name, false]));
  let turn = 0;
  return ({ headers }) => {
    const name = next ? next(turn++) : names[turn++ % names.length];
    const isNamed = /token=|hash=/.test(headers["orfa-cache"]);
    if (isNamed && !kept.get(name)) return problem(409, "program-unknown", { send_program: true, gateway: name });
    kept.set(name, true);
    const cache = isNamed ? "code;did=found" : `code;token=:b25l:;did=compiled;gateway=${name}`;
    return { headers: { "orfa-cache": cache }, body: { by: name } };
  };
}

for (const hash of [false, true])
  test(`each of several gateways asks once, ${hash ? "by hash" : "by token"}, in any order`, async (t) => {
    for (const count of [2, 3, 4, 7]) {
      const names = Array.from({ length: count }, (_, index) => `g${index}`);
      let seed = 1;
      const random = () => names[(seed = (seed * 48271) % 2147483647) % count];
      for (const next of [undefined, random]) {
        const { url, requests } = await gateway(t, several(names, next));
        const program = orfa(url).program(source, { hash });
        for (let n = 0; n < 100; n++) await program({ n });
        const asks = requests.length - 100;
        assert.ok(asks <= count - 1 + hash, `${count} gateways asked ${asks} times`);
        const last = asked(requests).slice(-10).map(([cache]) => cache);
        assert.deepEqual(new Set(last), new Set(["code;token=:b25l:"]), "all know the program in the end");
      }
    }
  });

test("a gateway that asked and never answers again is forgotten", async (t) => {
  const gone = (turn) => (turn === 1 ? "gone" : "g1");
  const { url, requests } = await gateway(t, several(["gone", "g1"], gone));
  const program = orfa(url).program(source);
  for (let n = 0; n < 40; n++) await program({ n });
  const whole = asked(requests).filter(([cache]) => cache === "code");
  assert.equal(whole.length, 1 + 32);
});

test("other problems do not cause a retry", async (t) => {
  let calls = 0;
  const { url, requests } = await gateway(t, () => (calls++ ? problem(422, "program-threw") : withToken("b25l")));
  const program = orfa(url).program(source);
  await program();
  await assert.rejects(program(), { code: "program-threw" });
  assert.equal((await program.fetch()).status, 422);
  assert.equal(requests.length, 3);
});

test("concurrent calls don't wait for the first token", async (t) => {
  const [both, bothCame] = signal();
  const { url, requests } = await gateway(t, async () => {
    if (requests.length === 2) bothCame();
    await both;
    return withToken("b25l");
  });
  const program = orfa(url).program(source);
  await Promise.all([program({ n: 1 }), program({ n: 2 })]);
  assert.deepEqual(asked(requests).map(([cache]) => cache), ["code", "code"]);
});

test("a token received meanwhile is not discarded with the old one", async (t) => {
  const [late, now] = signal();
  const { url, requests } = await gateway(t, async ({ headers, text }) => {
    if (text === '{"n":2}') await late;
    if (headers["orfa-cache"] === "code;token=:b25l:") return unknown();
    const tokens = { 1: "b25l", 3: "dHdv" };
    return headers["orfa-cache"] === "code" && tokens[text[5]] ? withToken(tokens[text[5]]) : { body: {} };
  });
  const program = orfa(url).program(source);
  await program({ n: 1 });
  const slow = program.fetch({ n: 2 });
  await program({ n: 3 });
  now();
  await slow;
  await program({ n: 4 });
  assert.deepEqual(asked(requests).at(-1), ["code;token=:dHdv:", '{"n":4}']);
});

test("tokens of a live instance are used unchanged; malformed ones are ignored", async (t) => {
  const fields = ["instance;token=:b25l:", "code;token=:dHdv:;did=hit", 'code;did="; token=:eA==:"', "nonsense;token=:eA==:"];
  const { url, requests } = await gateway(t, () => ({ headers: { "orfa-cache": fields.shift() ?? "" }, body: {} }));
  const program = orfa(url, { cache: "instance" }).program(source);
  for (let n = 0; n < 5; n++) await program();
  const sent = asked(requests).map(([cache]) => cache);
  assert.deepEqual(sent, ["instance", "instance;token=:b25l:", ...Array(3).fill("code;token=:dHdv:")]);
});

test("without a cache the program is sent with each call", async (t) => {
  const { url, requests } = await gateway(t, () => withToken("b25l"));
  const program = orfa(url, { store: store() }).program(source, { cache: false, hash: true });
  await program();
  await program();
  assert.deepEqual(asked(requests), [[undefined, source], [undefined, source]]);
});

test("by hash, the program is only sent if the gateway doesn't know it", async (t) => {
  const known = new Set();
  const { url, requests } = await gateway(t, ({ headers, text }) => {
    const [, asked] = headers["orfa-cache"].match(/hash=:(.*):/) ?? [];
    if (asked && !known.has(asked)) return unknown();
    if (text.endsWith(source)) known.add(hash);
    return withToken("b25l");
  });
  const options = { hash: true, signature: ':c2ln:;keyid="shop"' };
  for (const n of [1, 2]) {
    const program = orfa(url).program(source, options);
    await program({ n });
    await program({ n });
  }
  assert.deepEqual(asked(requests), [
    [`code;hash=:${hash}:`, '{"n":1}'],
    ["code", `{"n":1}${source}`],
    ["code;token=:b25l:", '{"n":1}'],
    [`code;hash=:${hash}:`, '{"n":2}'],
    ["code;token=:b25l:", '{"n":2}'],
  ]);
  const trusted = requests.map(({ headers }) => "orfa-trust" in headers);
  assert.deepEqual(trusted, [true, true, false, true, false]);
});

test("tokens in a store outlive the page; each program has its own", async (t) => {
  const shared = store();
  const { url, requests } = await gateway(t, ({ text }) => withToken(text.includes("other") ? "b3RoZXI=" : "b25l"));
  const other = "export default () => 'other'";
  // A new gateway object corresponds to a page that was loaded again.
  await Promise.all([source, other].map((text) => orfa(url, { store: shared }).program(text)()));
  const later = orfa(url, { store: shared });
  await later.program(source)({ n: 2 });
  await later.program(other)({ n: 3 });
  assert.deepEqual(asked(requests).slice(2), [["code;token=:b25l:", '{"n":2}'], ["code;token=:b3RoZXI=:", '{"n":3}']]);
});

test("an asynchronous store keeps the latest 32 tokens, without refused ones", async () => {
  const { kept, getItem, setItem } = store();
  const later = () => new Promise((next) => setImmediate(next));
  const shared = {
    getItem: async (key) => (await later(), getItem(key)),
    setItem: async (key, value) => (await later(), setItem(key, value)),
  };
  let refused = false;
  // Responds immediately, so that all tokens arrive before the first is stored.
  const fetch = async () => {
    const { status, headers, body } = refused ? unknown() : withToken("b25l");
    return new Response(JSON.stringify(body), { status, headers });
  };
  const own = orfa("https://api.example.org", { store: shared, fetch });
  const programs = Array.from({ length: 40 }, (_, n) => own.program(`export default () => ${n}`));
  await Promise.all(programs.map((program) => program()));
  const tokens = () => Object.keys(JSON.parse([...kept.values()][0])).length;
  await until(() => kept.size === 1 && tokens() === 32);
  refused = true;
  await assert.rejects(programs[39]());
  await until(() => tokens() === 31);
});

test("a store that throws or contains invalid data is ignored", async (t) => {
  const broken = { getItem: () => { throw new Error("no"); }, setItem: () => { throw new Error("full"); } };
  const { url, requests } = await gateway(t, () => withToken("b25l"));
  const foreign = (value) => ({ getItem: () => value, setItem() {} });
  const junk = JSON.stringify({ [`code ${hash}`]: "code;token=:\r\nx: y" });
  for (const bad of [broken, foreign("{"), foreign("7"), foreign(junk), foreign(undefined)]) {
    const program = orfa(url, { store: bad }).program(source);
    await program();
    await program();
    assert.deepEqual(asked(requests.splice(0)), [["code", source], ["code;token=:b25l:", ""]]);
  }
});

/** Waits until the condition holds; checks it in each turn of the event loop. */
async function until(holds) {
  while (!holds()) await new Promise((next) => setImmediate(next));
}
