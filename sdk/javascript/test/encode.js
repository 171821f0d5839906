// A second encoder, of the page and not of the gateway's code: slow, short, for tests. It shares every object that
// stands there twice, whether that pays or not, so that a decoder meets more than the gateway sends.

/** The deduplicated form of a JSON text, that for any JSON. */
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
