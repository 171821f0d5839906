// orders.ts: orders, each with its posting and its freelancer; three calls for any number of orders
import type { Services } from "./orfa";

const byId = (rows: any[]) => new Map(rows.map((row) => [row.id, row]));
const ids = (rows: any[], field: string) => [...new Set(rows.map((row) => row[field]))].join();

export default async function ({ limit = 50 }, { profile, catalog, order }: Services) {
  const orders = await order.get("/orders", { limit });
  const [catalogs, freelancers] = (await Promise.all([
    catalog.get("/catalogs", { ids: ids(orders, "catalog_id") }),
    profile.get("/freelancers", { ids: ids(orders, "freelancer_id") }),
  ])).map(byId);
  return orders.map((o) => {
    const c = catalogs.get(o.catalog_id), f = freelancers.get(o.freelancer_id);
    return {
      ...o,
      catalog: c ? { id: c.id, title: c.title, price: c.price } : null,
      freelancer: f ? { id: f.id, name: f.name } : null,
    };
  });
}
