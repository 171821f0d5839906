// The peer of crates/dedup/src/tests/javascript.rs. Each input line is a JSON text and its deduplicated form, or null.
// Each output line is the text as JavaScript writes it, the decoded form, and the text's form by our test encoder.
import { createInterface } from "node:readline";

import { decode } from "../dedup.js";
import { encode } from "./encode.js";

for await (const line of createInterface({ input: process.stdin })) {
  const [plain, wire] = JSON.parse(line);
  const meant = wire && JSON.stringify(decode(JSON.parse(wire)));
  console.log(JSON.stringify([JSON.stringify(JSON.parse(plain)), meant, encode(plain)]));
}
