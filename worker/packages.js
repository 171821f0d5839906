// Resolution of packages that a script imports, as `import` would resolve them from a module in the script's
// folder.
//
// Engines provide no such function for a given folder. `require.resolve` is almost equivalent, except that it
// does not support packages whose `exports` are for `import` only.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

/** The active conditions. */
const CONDITIONS = new Set(["node", "import", "module-sync", "default"]);

/**
 * @param {string} specifier
 * @param {string} folder
 * @returns {string} the argument for `import()`
 */
export function resolvePackage(specifier, folder) {
  const require = createRequire(join(folder, "script.js"));
  const exported = exportOf(specifier, folder);
  if (exported !== undefined) return pathToFileURL(exported).href;
  const found = require.resolve(specifier);
  return found.startsWith("/") ? pathToFileURL(found).href : found;
}

/** Returns the file that a package's `exports` specify for `import`. */
function exportOf(specifier, folder) {
  const [, name, rest] = /^((?:@[^/]+\/)?[^./@][^/]*)(\/.*)?$/.exec(specifier) ?? [];
  if (name === undefined) return undefined;
  for (let at = folder; ; at = dirname(at)) {
    const root = join(at, "node_modules", name);
    const manifest = read(join(root, "package.json"));
    const target = manifest && targetOf(manifest.exports, `.${rest ?? ""}`);
    if (target !== undefined) return join(root, target);
    if (manifest || at === dirname(at)) return undefined;
  }
}

function targetOf(exports, subpath) {
  if (exports === undefined || exports === null) return undefined;
  const isMap = typeof exports === "object" && Object.keys(exports).some((key) => key.startsWith("."));
  if (!isMap) return subpath === "." ? conditional(exports) : undefined;
  if (Object.hasOwn(exports, subpath)) return conditional(exports[subpath]);
  for (const [pattern, target] of Object.entries(exports)) {
    const [before, after] = pattern.split("*");
    if (after === undefined || !subpath.startsWith(before) || !subpath.endsWith(after)) continue;
    return conditional(target)?.replaceAll("*", subpath.slice(before.length, subpath.length - after.length));
  }
  return undefined;
}

function conditional(target) {
  if (typeof target === "string") return target;
  if (Array.isArray(target)) return target.map(conditional).find(Boolean);
  for (const [condition, inner] of Object.entries(target ?? {})) {
    const found = CONDITIONS.has(condition) ? conditional(inner) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

function read(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}
