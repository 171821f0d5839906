// Measures the CPU time of a worker per run, under the loads of the benchmarks of the whole gateway: `node
// worker/tests/bench.js [name...]` prints the total, user and system time. WORKER_ENGINE selects the engine
// and its options, for example `node --cpu-prof --cpu-prof-dir=FOLDER`.
import { readFileSync } from "node:fs";

import { ASCII, JSON_ASCII } from "../frames.js";
import { Gateway } from "./gateway.js";

const AT_ONCE = 32;
const SECONDS = Number(process.env.SECONDS ?? 3);
const resident = (pid) => (/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1] / 1024).toFixed(0);
/** User and system time, in hundredths of a second. */
const ticks = (pid) => readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ").slice(11, 13).map(Number);

const product = JSON.stringify({ id: 7, name: "kettle", price: 30, stock: [1, 2, 3], text: "x".repeat(600) });
const page = "<p>orfa <a href='/page/17'>one</a> and orfa again, " .repeat(2000);
const answers = { "http://p/": { kind: JSON_ASCII, content: product }, "http://t/": { kind: ASCII, content: page } };
const calls = ({ url }) => answers[url.slice(0, 9)];

const loads = {
  hello: { code: `function (query, response, $r) { $r.respond("Hello World") }` },
  composite: {
    code: `async function (query, response, $r) {
      const a = $s.resource(["http://p/a?q=", ""]), b = $s.resource(["http://p/b?q=", ""]); let $1, $2;
      await $r.par([[], async () => { $1 = await $r.call(1, a, 0, [query.q]) }], [[], async () => { $2 = await $r.unread(2, b, 0, [query.q]) }]);
      $r.respond({ ...$1, other: $2 });
    }`,
    options: { query: { q: "tea" } },
  },
  page: {
    code: `async function (query, response, $r) {
      const g = $s.resource(["http://t/p"]);
      const text = await $r.call(1, g, 0, []);
      const links = [...text.matchAll(/href='([^']*)'/g)].map((m) => m[1]);
      $r.respond({ hits: text.match(/orfa/g).length, links: links.length });
    }`,
  },
  answer100k: { code: `async function (query, response, $r) { $r.respond((await $r.call(1, $s.resource(["http://t/p"]), 0, [])).length) }` },
  increment: { code: `function (query, response, $r) { const $c = $r.cells; $c.n++; $r.respond($c.n) }`, cells: ["n"], writer: true, value: 0 },
  append100: { code: `function (query, response, $r) { const $c = $r.cells; $c.list.push(query.v) }`, cells: ["list"], options: { query: { v: 1 } }, writer: true, value: Array(100).fill(5), most: 100 },
  append100k: { code: `function (query, response, $r) { const $c = $r.cells; $c.list.push(query.v) }`, cells: ["list"], options: { query: { v: 1 } }, writer: true, value: Array(100_000).fill(5) },
  read100k: { code: `function (query, response, $r) { const $c = $r.cells; $r.respond($c.list) }`, cells: ["list"], value: Array(100_000).fill(5) },
};

async function measure(name, { code, cells, options, writer, value }) {
  const gateway = new Gateway({ calls });
  await gateway.start();
  const program = await gateway.service([{ code, cells }]);
  let version = 1;
  if (cells) gateway.state(3, version, 0, value);
  let runs = 0;
  let stop = false;
  const one = async () => {
    while (!stop) {
      const at = version;
      if (writer) version++;
      const end = await gateway.run(program, 0, { ...options, ...(cells && { cells: [3], version: at, durable: writer ? Math.max(1, at - 20) : at, writer }) });
      if (end.message) throw new Error(end.message);
      runs++;
    }
  };
  const warm = Array.from({ length: AT_ONCE }, one);
  await new Promise((r) => setTimeout(r, 1000));
  const [before, began] = [ticks(gateway.process.pid), runs];
  await new Promise((r) => setTimeout(r, 1000 * SECONDS));
  const [user, system] = ticks(gateway.process.pid).map((after, i) => ((after - before[i]) * 1e4) / (runs - began));
  const figures = [user + system, user, system].map((figure) => figure.toFixed(2).padStart(8));
  console.log(`${gateway.engine.padEnd(12)} ${name.padEnd(10)} ${figures.join(" ")} us a run, ${((runs - began) / SECONDS).toFixed(0)} runs/s, ${resident(gateway.process.pid)} MB`);
  stop = true;
  await Promise.all(warm);
  await gateway.close({ kill: false });
}

for (const [name, load] of Object.entries(loads)) {
  if (process.argv.length === 2 || process.argv.includes(name)) await measure(name, load);
}
