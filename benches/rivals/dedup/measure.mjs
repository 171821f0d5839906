#!/usr/bin/env node
// What graphql-crunch and graphql-deduplicator make of JSON texts, and how long a client takes to read each form.
// `measure.mjs FOLDER DECODER ROUNDS`: the folder has NAME.plain.json and, where that pays, NAME.dedup.json; the decoder
// is sdk/javascript/dedup.js. What the rivals make is written beside them; times go to standard output, in
// microseconds of CPU, which neighbours change least, round by round, the ways in turn.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { brotliCompressSync, brotliDecompressSync, constants, gunzipSync, gzipSync } from "node:zlib";

const require = createRequire(import.meta.url);
const { crunch, uncrunch } = require("graphql-crunch");
const { deflate, inflate } = require("graphql-deduplicator");

const [folder, decoder, rounds] = process.argv.slice(2);
if (folder === "--version") {
  const versions = ["graphql-crunch", "graphql-deduplicator"].map((name) => `${name} ${require(`${name}/package.json`).version}`);
  console.log(`version: ${versions.join(", ")}`);
  process.exit();
}
const { decode } = await import(pathToFileURL(decoder));

/** How long a way is repeated in a round, in milliseconds: long enough for a clock, short enough to take turns. */
const LONG = 10;

const br = (text) => brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } });

/** Ways to read an answer, to the whole object. */
function ways(name) {
  const file = (form) => `${folder}/${name}.${form}.json`;
  const plain = readFileSync(file("plain"), "utf8");
  const answer = JSON.parse(plain);
  const made = { crunch: crunch(JSON.parse(plain), 2), deduplicator: deflate(JSON.parse(plain)) };
  const [crunched, deflated] = Object.entries(made).map(([form, value]) => {
    const text = JSON.stringify(value);
    writeFileSync(file(form), text);
    return text;
  });
  const wire = existsSync(file("dedup")) ? readFileSync(file("dedup"), "utf8") : undefined;
  const ours = (text) => (wire ? decode(JSON.parse(text)) : JSON.parse(text));
  const [zipped, small] = [gzipSync(plain), br(plain)];
  const [zippedWire, smallWire] = [gzipSync(wire ?? plain), br(wire ?? plain)];
  const all = {
    plain: () => JSON.parse(plain),
    gzip: () => JSON.parse(gunzipSync(zipped)),
    br: () => JSON.parse(brotliDecompressSync(small)),
    crunch: () => uncrunch(JSON.parse(crunched)),
    deduplicator: () => inflate(JSON.parse(deflated)),
    dedup: () => ours(wire ?? plain),
    "dedup+gzip": () => ours(gunzipSync(zippedWire)),
    "dedup+br": () => ours(brotliDecompressSync(smallWire)),
  };
  for (const [way, read] of Object.entries(all)) assert.deepEqual(read(), answer, way);
  // What a client does that leaves the stubs as they are.
  return { ...all, "deduplicator, not inflated": () => JSON.parse(deflated) };
}

function micros(read, times) {
  const begun = process.cpuUsage();
  for (let time = 0; time < times; time++) read();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / times;
}

const told = {};
for (const file of readdirSync(folder).filter((file) => file.endsWith(".plain.json"))) {
  const name = file.replace(".plain.json", "");
  const all = Object.entries(ways(name)).map(([way, read]) => {
    const once = micros(read, 20);
    return { way, read, times: Math.max(5, Math.round((LONG * 1000) / once)), micros: [] };
  });
  for (let round = 0; round < Number(rounds); round++) {
    for (const each of all) each.micros.push(micros(each.read, each.times));
  }
  told[name] = Object.fromEntries(all.map(({ way, micros }) => [way, micros]));
}
console.log(JSON.stringify(told));
