// Reads a JSON list of texts from standard input, and writes acorn's opinion on each.

import { readFileSync } from "node:fs";
import { opinion } from "./s.js";

const texts = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map(opinion)));
