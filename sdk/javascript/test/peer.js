// The other side of crates/dedup/src/tests/javascript.rs. A line in is a JSON text and its deduplicated form, or null; a line
// out is the text as JavaScript spells it, what the form means, and the text's form by the encoder here.
import { createInterface } from "node:readline";

import { decode } from "../dedup.js";
import { encode } from "./encode.js";

for await (const line of createInterface({ input: process.stdin })) {
  const [plain, wire] = JSON.parse(line);
  const meant = wire && JSON.stringify(decode(JSON.parse(wire)));
  console.log(JSON.stringify([JSON.stringify(JSON.parse(plain)), meant, encode(plain)]));
}
