// What the README says of the library's size, and of what stands in one file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const file = (name) => readFileSync(new URL(`../${name}`, import.meta.url));

test("the library is one file of at most the size that the README names", () => {
  const code = file("client.js");
  const [, kilobytes] = file("README.md").toString().match(/under (\d+) kB gzipped/);
  assert.ok(gzipSync(code).length < kilobytes * 1000, `${gzipSync(code).length} bytes`);
  assert.doesNotMatch(code.toString(), /^import /m);
});
