// A second encoder for tests, written from docs/deduplication.md and not from the gateway's code: slow and short. It
// shares every repeated object, even if that saves nothing, so that decoders are tested with more than the gateway sends.

/** Returns the deduplicated form of a JSON text. */
export function encode(text) {
  const times = new Map();
  const count = (value) => {
    if (typeof value !== "object" || value === null) return;
    Object.values(value).forEach(count);
    const key = JSON.stringify(value);
    times.set(key, (times.get(key) ?? 0) + 1);
  };
  const entries = [];
  const places = new Map();
  const spelt = (value) => {
    if (Array.isArray(value)) return `[${value.map(written)}]`;
    const names = Object.keys(value);
    const more = names.length === 1 && /^\$+$/.test(names[0]) ? "$" : "";
    return `{${names.map((name) => `${JSON.stringify(more + name)}:${written(value[name])}`)}}`;
  };
  const written = (value) => {
    if (typeof value !== "object" || value === null) return JSON.stringify(value);
    const key = JSON.stringify(value);
    if (Array.isArray(value) || times.get(key) < 2) return spelt(value);
    if (!places.has(key)) {
      const entry = spelt(value);
      places.set(key, entries.push(entry) - 1);
    }
    return `{"$":${places.get(key)}}`;
  };
  const value = JSON.parse(text);
  count(value);
  const root = written(value);
  return `{"t":[${entries}],"r":${root}}`;
}
