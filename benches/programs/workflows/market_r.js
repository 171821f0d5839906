// market.r: the second newest posting of each buyer, null where there is none.
export default async ({ n = 4 }, { profile, catalog }) => {
  const buyers = await profile.get("/buyers", { limit: n });
  const newest = ({ id }) => catalog.get("/catalogs", { buyer: id, sort: "-created", limit: 2 });
  return (await Promise.all(buyers.map(newest))).map((list) => list[1]?.title ?? null);
};
