// How the files with cases are read.

// What a service of version 2 imports if it doesn't say so itself.
export const V2 = `extend schema @link(url: "https://specs.apollo.dev/federation/v2.7", import: ["@key", "@requires", "@provides",
  "@external", "@shareable", "@override", "@inaccessible", "@interfaceObject", "@tag"])\n`;

// What stands after each line that begins so, by the rest of that line.
export const parts = (text, separator) =>
  text.split(separator).slice(1).map((part) => [part.slice(0, part.indexOf("\n")), part.slice(part.indexOf("\n") + 1)]);

// The services of a case: each after a line `# service: NAME`, with ` (v2)` if it is of that version.
export const services = (text, parse) =>
  parts(text, "# service: ").map(([name, sdl]) => ({
    name: name.replace(" (v2)", ""),
    typeDefs: parse((name.endsWith(" (v2)") ? V2 : "") + sdl, { noLocation: true }),
    url: "",
  }));
