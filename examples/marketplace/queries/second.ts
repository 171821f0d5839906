// second.ts: the second newest posting of each buyer
import type { Services } from "./orfa";

export default async function ({ n = 8 }, { profile, catalog }: Services) {
  const buyers = await profile.get("/buyers", { limit: n });
  return Promise.all(buyers.map(async (b) => {
    const [, second] = await catalog.get("/catalogs", { buyer: b.id, sort: "-created", limit: 2 });
    return { buyer: b.name, second: second?.title ?? null };
  }));
}
