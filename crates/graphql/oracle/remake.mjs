// What composing has to agree with: @theguild/federation-composition composes every case of `cases/`, and what it says is
// kept beside it. What executing has to agree with: `runs.mjs`; so is the supergraph of the tests end to end. After a case was
// added: `npm ci && node remake.mjs` in this folder.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { composeServices } from "@theguild/federation-composition";
import { parse, print } from "graphql";
import { parts, services } from "./cases.mjs";
import { run, supergraph } from "./runs.mjs";

const composed = (text) => {
  const { supergraphSdl, errors } = composeServices(services(text, parse));
  if (errors) return `refused: ${[...new Set(errors.map((error) => error.extensions.code))].sort().join(" ")}\n`;
  const isOwn = ({ kind, name }) => kind.endsWith("TypeDefinition") && !/^(join|link)__/.test(name.value);
  return `${parse(supergraphSdl, { noLocation: true }).definitions.filter(isOwn).map(print).join("\n")}\n`;
};

for (const [folder, make] of [["cases/", composed], ["runs/", run]]) {
  const url = new URL(folder, import.meta.url);
  for (const file of readdirSync(url).filter((file) => file.endsWith(".graphql"))) {
    const said = [];
    for (const [name, text] of parts(readFileSync(new URL(file, url), "utf8"), "# case: ")) {
      said.push(`# case: ${name}\n${await make(text)}`);
    }
    writeFileSync(new URL(file.replace(/graphql$/, "expected"), url), said.join("\n"));
  }
}

const tests = new URL("../../../tests/graphql/", import.meta.url);
const subgraphs = ["products", "reviews"].map((name) => {
  return { name, url: "", typeDefs: parse(readFileSync(new URL(`${name}.graphql`, tests), "utf8")) };
});
writeFileSync(new URL("supergraph.graphql", tests), `${supergraph(subgraphs)}\n`);
