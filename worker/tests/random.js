// A seeded random generator for property tests: a failure reports the seed, which reproduces it.

/** @param {number} seed */
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return { next, below, chance: (p) => next() < p, pick: (list) => list[below(list.length)] };
}

/** Runs a property with many seeds; in the environment, `SEED` selects one, and `RUNS` sets their number. */
export async function law(runs, play) {
  const { SEED, RUNS } = process.env;
  const seeds = SEED ? [Number(SEED)] : Array.from({ length: Number(RUNS ?? runs) }, (_, i) => i + 1);
  for (const seed of seeds) {
    try {
      await play(random(seed));
    } catch (error) {
      error.message = `SEED=${seed}: ${error.message}`;
      throw error;
    }
  }
}

/** Generates a JSON value. */
export function value(r, depth = 3) {
  const kind = r.below(depth > 0 ? 7 : 5);
  if (kind === 0) return null;
  if (kind === 1) return r.chance(0.5);
  if (kind === 2) return r.below(100) - 50;
  if (kind === 3) return r.next() * 10 ** r.below(20);
  if (kind === 4) return r.pick(["", "a", "Zoë", "\ud83d\ude00", "__", 'quote"', "x".repeat(30)]);
  const size = r.below(5);
  if (kind === 5) return Array.from({ length: size }, () => value(r, depth - 1));
  return Object.fromEntries(Array.from({ length: size }, () => [key(r), value(r, depth - 1)]));
}

export function key(r) {
  return r.pick(["a", "b", "c", "d", "length", "0", "7", "toJSON", "constructor", "a b", "é"]);
}
