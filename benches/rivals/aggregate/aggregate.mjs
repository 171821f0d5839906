#!/usr/bin/env node
// The marketplace's Q4 and Q5, written by hand on Fastify for just these shapes, calling by pools of undici's.
// `aggregate.mjs HOST PORT PROFILE CATALOG ORDER`; `aggregate.mjs --version`
import { createRequire } from "node:module";
import Fastify from "fastify";
import { Pool } from "undici";

const [host, port, ...services] = process.argv.slice(2);
const require = createRequire(import.meta.url);

// What is known of an answer makes its serialisation faster.
const integer = { type: "integer" }, string = { type: "string" };
const object = (properties, more) => ({ type: "object", properties, ...more });
const array = (items) => ({ type: "array", items });
const nullable = { nullable: true };
const posting = object({
  id: integer, buyer_id: integer, title: string, description: string, category: string, price: integer,
  currency: string, skills: array(string), created: string, open: { type: "boolean" },
});
const buyer = object({
  id: integer, name: string, company: string, email: string, phone: string, city: string, country: string,
  about: string, joined: string, catalogs: array(posting),
});
const order = object({
  id: integer, catalog_id: integer, freelancer_id: integer, buyer_id: integer, status: string, created: string,
  payment: object({ amount: integer, currency: string, method: string, paid_at: { ...string, ...nullable } }),
  review: object({ stars: integer, text: string }, nullable),
  catalog: object({ id: integer, title: string, price: integer }, nullable),
  freelancer: object({ id: integer, name: string }, nullable),
});
const answers = (row) => ({ schema: { response: { 200: array(row) } } });

const byId = (rows) => new Map(rows.map((row) => [row.id, row]));
const ids = (rows, field) => [...new Set(rows.map((row) => row[field]))].join();

function start() {
  const app = Fastify({ logger: false, keepAliveTimeout: 300_000 });
  const [profile, catalog, orders] = services.map((url) => new Pool(url, { keepAliveTimeout: 300_000 }));
  const get = async (pool, path) => {
    const { statusCode, body } = await pool.request({ path, method: "GET" });
    if (statusCode !== 200) throw Object.assign(new Error(`${path}: ${statusCode}`), { statusCode: 502 });
    return body.json();
  };

  app.get("/q4", answers(buyer), async () => {
    const [buyers, postings] = await Promise.all([get(profile, "/buyers"), get(catalog, "/catalogs")]);
    for (const buyer of buyers) buyer.catalogs = [];
    const known = byId(buyers);
    for (const posting of postings) known.get(posting.buyer_id)?.catalogs.push(posting);
    return buyers;
  });
  app.get("/q5", answers(order), async ({ query: { limit } }) => {
    const rows = await get(orders, `/orders?limit=${encodeURIComponent(limit)}`);
    const [postings, people] = (await Promise.all([
      get(catalog, `/catalogs?ids=${ids(rows, "catalog_id")}`),
      get(profile, `/freelancers?ids=${ids(rows, "freelancer_id")}`),
    ])).map(byId);
    for (const row of rows) {
      row.catalog = postings.get(row.catalog_id) ?? null;
      row.freelancer = people.get(row.freelancer_id) ?? null;
    }
    return rows;
  });
  app.listen({ host, port: Number(port) });
}

if (host === "--version") {
  const [fastify, undici] = ["fastify", "undici"].map((name) => require(`${name}/package.json`).version);
  console.log(`version: fastify ${fastify}, undici ${undici}, node ${process.versions.node}`);
} else {
  start();
}
