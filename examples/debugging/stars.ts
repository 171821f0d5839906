// The average stars of n completed orders, with a bug that docs/debugging.md finds.
type Order = { id: number; review: { stars: number } };

export default async function ({ n = 12 }, { order }) {
  const orders: Order[] = await order.get("/orders", { status: "completed", limit: n });
  let sum = 0;
  for (const one of orders) {
    sum += one.review.stars;
  }
  return { reviews: orders.length, average: sum / orders.length };
}
