// Frames arrive unchanged: in any pieces, of any size, with any characters.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ASCII, BYTES, Cursor, Inbox, JSON_TEXT, Outbox, TEXT } from "../frames.js";
import { gateway } from "./gateway.js";
import { law, value } from "./random.js";

/** Returns a socket that records the written bytes, and may be slow. */
function socket(slow = false) {
  return { pieces: [], writableLength: slow ? 1 : 0, write(bytes) { this.pieces.push(slow ? bytes : Buffer.from(bytes)) } };
}

/** Encodes frames, each with a text and a body. */
function written(frames) {
  const to = socket();
  const outbox = new Outbox(to, () => {});
  for (const [i, content] of frames.entries()) {
    const kind = typeof content === "string" ? TEXT : content ? BYTES : 0;
    outbox.begin(200 + (i % 50), i).u16(i).text(String(i)).body(kind, content).end();
  }
  outbox.flush();
  assert.equal(to.pieces.length, 1, "one write");
  return to.pieces[0];
}

/** Decodes frames from pieces of these sizes, all through one buffer, as in the worker. */
function received(bytes, sizes) {
  const inbox = new Inbox();
  const cursor = new Cursor();
  const buffer = Buffer.alloc(bytes.length);
  const frames = [];
  for (let at = 0; at < bytes.length; ) {
    const size = Math.min(sizes(), bytes.length - at);
    bytes.copy(buffer, 0, at, at + size);
    at += size;
    inbox.push(buffer, size);
    while (inbox.next(cursor)) {
      const i = frames.length;
      assert.deepEqual([cursor.u8(), cursor.u32(), cursor.u16(), cursor.text()], [200 + (i % 50), i, i, String(i)]);
      frames.push(cursor.content(cursor.u8()));
      assert.equal(cursor.at, cursor.end);
    }
    buffer.fill(0xee);
  }
  return frames;
}

const samples = ["", undefined, "a", "Zoë", "\u{1f600}", "x".repeat(23), "é".repeat(24), new Uint8Array([1, 2, 255]), new Uint8Array(0)];

test("frames may be split at any byte", () => {
  const bytes = written(samples);
  for (let cut = 1; cut < bytes.length; cut++) {
    let first = true;
    const sizes = () => (first ? ((first = false), cut) : bytes.length);
    assert.deepEqual(received(bytes, sizes), samples);
  }
  for (const size of [1, 2, 3, 5, 7]) assert.deepEqual(received(bytes, () => size), samples);
});

test("frames of any size, in pieces of any size", () =>
  law(60, (r) => {
    const frames = Array.from({ length: 1 + r.below(20) }, () => {
      const size = r.pick([0, 3, 30, 300, 5000, 70_000]) + r.below(10);
      return r.pick([() => r.pick(["a", "é", "\u{1f600}"]).repeat(size), () => new Uint8Array(size).fill(size)])();
    });
    const most = r.pick([10, 1000, 100_000]);
    assert.deepEqual(received(written(frames), () => 1 + r.below(most)), frames);
  }));

test("bytes that arrive before the previous ones are consumed are queued", () => {
  const bytes = written(samples);
  const inbox = new Inbox();
  const cursor = new Cursor();
  for (let at = 0; at < bytes.length; at += 9) inbox.push(bytes.subarray(at, at + 9), Math.min(9, bytes.length - at));
  let count = 0;
  while (inbox.next(cursor)) count++;
  assert.equal(count, samples.length);
});

test("bytes that a slow socket has not sent are not overwritten", () => {
  const to = socket(true);
  const outbox = new Outbox(to, () => {});
  for (const letter of ["a", "b", "c"]) {
    outbox.begin(1, 1).text(letter.repeat(10)).end();
    outbox.flush();
  }
  assert.deepEqual(to.pieces.map((piece) => piece.toString("latin1").slice(-3)), ["aaa", "bbb", "ccc"]);
});

test("a frame whose write throws is discarded", () => {
  const to = socket();
  const outbox = new Outbox(to, () => {});
  const number = { valueOf: null, toString: null };
  outbox.begin(1, 1).text("before").end();
  for (const write of [(frame) => frame.u8(1).u16(number), (frame) => frame.text(undefined), (frame) => frame.u32(number)]) {
    assert.throws(() => write(outbox.begin(2, 2).text("half")), TypeError);
  }
  outbox.flush();
  assert.throws(() => outbox.begin(2, 2).u16(number), TypeError);
  outbox.flush();
  outbox.begin(3, 3).text("behind").end();
  outbox.flush();
  const inbox = new Inbox();
  const cursor = new Cursor();
  const bytes = Buffer.concat(to.pieces);
  inbox.push(bytes, bytes.length);
  const frames = [];
  while (inbox.next(cursor)) {
    frames.push([cursor.u8(), cursor.u32(), cursor.text()]);
    assert.equal(cursor.at, cursor.end);
  }
  assert.deepEqual(frames, [[1, 1, "before"], [3, 3, "behind"]]);
});

test("an unpaired surrogate arrives as U+FFFD, in short and long strings", () => {
  const halves = ["\ud800", `${"x".repeat(30)}\udc00`];
  assert.deepEqual(received(written(halves), () => 1000), ["\ufffd", `${"x".repeat(30)}\ufffd`]);
});

test("a worker receives and sends bodies of megabytes in small pieces", async (t) => {
  const g = await gateway(t, { calls: ({ body }) => ({ kind: TEXT, content: body }), cut: 50_000 });
  const program = await g.service([
    { code: `async function (query, response, $r) { $r.respond(await $r.call(1, $s.resource(["http://x/"]), 2, [query.$body])) }` },
    { code: `function (query, response, $r) { $r.respond(query.$body) }` },
  ]);
  const text = `é${"0123456789".repeat(300_000)}`;
  const ascii = text.slice(1);
  const bytes = new Uint8Array(3_000_000).map((_, i) => i * 7);
  const many = [
    g.run(program, 0, { body: { kind: TEXT, content: text } }),
    g.run(program, 0, { body: { kind: ASCII, content: ascii } }),
    g.run(program, 1, { body: { kind: BYTES, content: bytes } }),
  ];
  const [first, second, third] = await Promise.all(many);
  assert.ok(first.body === text);
  assert.ok(second.body === ascii);
  assert.ok(Buffer.compare(third.body, bytes) === 0);
});

test("many large concurrent results reach their own runs", async (t) => {
  const waiting = [];
  const content = (query) => JSON.parse(query).n + "x".repeat(100_000);
  const g = await gateway(t, {
    calls: (frame) => {
      if (waiting.push(frame) < 50) return;
      const all = waiting.splice(0);
      g.together(() => all.forEach(({ run, call, query }) => g.done(run, call, { kind: TEXT, content: content(query) })));
    },
  });
  const code = `async function (query, response, $r) {
    const g = $s.resource(["/p?n=", ""]), texts = [];
    for (let i = 0; i < 5; i++) texts.push((await $r.call(1, g, 0, [query.n])).slice(0, 3));
    $r.respond(texts.join());
  }`;
  const program = await g.service([{ code }]);
  let runs;
  g.together(() => (runs = Array.from({ length: 50 }, (_, n) => g.run(program, 0, { query: { n: 10 + n } }))));
  const bodies = await Promise.all(runs.map(async (run) => (await run).body));
  assert.deepEqual(bodies, bodies.map((_, n) => Array(5).fill(`${10 + n}x`).join()));
});

test("any JSON value is returned unchanged", async (t) => {
  const g = await gateway(t, { cut: 11 });
  const program = await g.service([{ code: `function (query, response, $r) { $r.respond([query.v, query.$body]) }` }]);
  await law(100, async (r) => {
    const [v, body] = [value(r), [value(r)]];
    const end = await g.run(program, 0, { query: { v }, body: { kind: JSON_TEXT, content: JSON.stringify(body) } });
    assert.deepEqual(JSON.parse(end.body), [v, body]);
  });
});
