// Makes the page of GraphiQL: one file, so that it needs no address but the route's, and its scripts can be named to the
// browser by their hash. Fonts are left out: they were three quarters of it, and every system has some.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const here = new URL(".", import.meta.url);
const read = (path) => readFileSync(new URL(path, here), "utf8");
const write = (path, content) => writeFileSync(new URL(path, here), content);

const scripts = [
  "node_modules/react/umd/react.production.min.js",
  "node_modules/react-dom/umd/react-dom.production.min.js",
  "node_modules/graphiql/graphiql.min.js",
  "start.js",
];
// What would end the script early stands in texts and patterns only, where a backslash changes nothing.
const guarded = (script) => script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const unmapped = (script) => script.replace(/\n\/\/# sourceMappingURL=.*/, "");
const script = scripts.map((path) => `{${guarded(unmapped(read(path)))}\n}`).join("\n");
const style = read("node_modules/graphiql/graphiql.min.css").replace(/@font-face\s*\{[^}]*\}/g, "");
if (style.includes("</style")) throw new Error("the style would end early");

const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>GraphiQL</title>
<link rel="icon" href="data:,">
<style>html, body, #graphiql { height: 100%; margin: 0 }
${style}</style>
<div id="graphiql">Loading GraphiQL</div>
<script>${script}</script>
</html>
`;
write("graphiql.html.gz", gzipSync(page, { level: 9 }));
write("script.sha256", createHash("sha256").update(script).digest("base64"));
write("LICENSES.txt", licences());

// The licence of each package that the page holds code of, or may.
function licences() {
  const lock = JSON.parse(read("package-lock.json")).packages;
  const texts = new Map();
  for (const [path, { version, license, dev }] of Object.entries(lock)) {
    if (!path || dev || path.includes("/@types/")) continue;
    const folder = new URL(`${path}/`, here);
    if (!existsSync(folder)) continue;
    const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
    const text = file ? readFileSync(new URL(file, folder), "utf8").trim() : `Licence: ${license}`;
    const name = `${path.replace(/^.*node_modules\//, "")} ${version} (${license})`;
    texts.set(text, [...(texts.get(text) ?? []), name]);
  }
  const parts = [...texts].map(([text, names]) => `${names.sort().join("\n")}\n\n${text}\n`);
  return `The page of GraphiQL holds code of these packages.\n\n${parts.sort().join(`\n${"-".repeat(80)}\n\n`)}`;
}
