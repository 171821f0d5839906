// Reads texts from standard input, a list in JSON, and writes what acorn makes of each.

import { readFileSync } from "node:fs";
import { opinion } from "./s.js";

const texts = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map(opinion)));
