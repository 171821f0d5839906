// What composing has to agree with: @theguild/federation-composition composes every case of `cases/`, and what it says is
// kept beside it. After a case was added: `npm ci && node remake.mjs` in this folder.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { composeServices } from "@theguild/federation-composition";
import { parse, print } from "graphql";

// What a service of version 2 imports if it doesn't say so itself.
const V2 = `extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@requires", "@provides",
  "@external", "@shareable", "@override", "@inaccessible", "@interfaceObject", "@tag"])\n`;

const parts = (text, separator) =>
  text.split(separator).slice(1).map((part) => [part.slice(0, part.indexOf("\n")), part.slice(part.indexOf("\n") + 1)]);

const composed = (text) => {
  const services = parts(text, "# service: ").map(([name, sdl]) => ({
    name: name.replace(" (v2)", ""),
    typeDefs: parse((name.endsWith(" (v2)") ? V2 : "") + sdl, { noLocation: true }),
    url: "",
  }));
  const { supergraphSdl, errors } = composeServices(services);
  if (errors) return `refused: ${[...new Set(errors.map((error) => error.extensions.code))].sort().join(" ")}\n`;
  const isOwn = ({ kind, name }) => kind.endsWith("TypeDefinition") && !/^(join|link)__/.test(name.value);
  return `${parse(supergraphSdl, { noLocation: true }).definitions.filter(isOwn).map(print).join("\n")}\n`;
};

const folder = new URL("cases/", import.meta.url);
for (const file of readdirSync(folder).filter((file) => file.endsWith(".graphql"))) {
  const cases = parts(readFileSync(new URL(file, folder), "utf8"), "# case: ");
  const said = cases.map(([name, text]) => `# case: ${name}\n${composed(text)}`);
  writeFileSync(new URL(file.replace(/graphql$/, "expected"), folder), said.join("\n"));
}
