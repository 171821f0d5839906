#!/usr/bin/env node
// The handlers of `benches/programs/handlers.sjs` on Fastify, calling by a pool of undici's.
// `fastify.mjs HOST PORT SERVICE`; `fastify.mjs --version`
import { createRequire } from "node:module";
import Fastify from "fastify";
import { Pool } from "undici";

const [host, port, service] = process.argv.slice(2);
const require = createRequire(import.meta.url);

// What is known of an answer makes its serialisation faster.
const item = { type: "object", properties: { id: { type: "integer" }, title: { type: "string" }, price: { type: "number" } } };
const user = { id: { type: "integer" }, name: { type: "string" }, mail: { type: "string" }, town: { type: "string" } };
const answers = (properties) => ({ schema: { response: { 200: { type: "object", properties } } } });

function start() {
  const app = Fastify({ logger: false, keepAliveTimeout: 300_000 });
  const pool = new Pool(service, { keepAliveTimeout: 300_000 });
  const get = async (path) => (await pool.request({ path, method: "GET" })).body;

  app.get("/composite", answers({ ...user, items: { type: "array", items: item } }), async ({ query: { id } }) => {
    id = encodeURIComponent(id);
    const [user, items] = await Promise.all([
      get(`/user?id=${id}`).then((body) => body.json()),
      get(`/items?user=${id}`).then((body) => body.json()),
    ]);
    return { ...user, items };
  });
  app.get("/page", answers({ words: { type: "integer" }, links: { type: "integer" } }), async () => {
    const text = await (await get("/page")).text();
    return { words: text.match(/\bitem\b/g).length, links: text.match(/href="[^"]*"/g).length };
  });
  app.listen({ host, port: Number(port) });
}

if (host === "--version") {
  const [fastify, undici] = ["fastify", "undici"].map((name) => require(`${name}/package.json`).version);
  console.log(`version: fastify ${fastify}, undici ${undici}, node ${process.versions.node}`);
} else {
  start();
}
