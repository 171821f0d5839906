// Tests of the README's claims about the library's size and files.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const file = (name) => readFileSync(new URL(`../${name}`, import.meta.url));

test("the library is two files, smaller than the README claims", () => {
  const code = ["client.js", "dedup.js"].map((name) => file(name).toString());
  const [, kilobytes] = file("README.md").toString().match(/under (\d+) kB gzipped/);
  const bytes = gzipSync(code.join("")).length;
  assert.ok(bytes < kilobytes * 1000, `${bytes} bytes`);
  assert.deepEqual(code.map((text) => text.match(/^import .*/gm)), [['import { decode, JSON_TYPE } from "./dedup.js";'], null]);
});
