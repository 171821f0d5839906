#!/usr/bin/env node
// The marketplace rewritten as RPC classes of Cap'n Web, over the REST services, and a client that does the demo's jobs by
// them. `capnweb.mjs serve HOST PORT PROFILE CATALOG ORDER`; `capnweb.mjs ask URL JOB RUNS`, which says on standard output
// what each run took, after ten that are not counted; `capnweb.mjs --version`
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { RpcTarget, newHttpBatchRpcSession, nodeHttpBatchRpcResponse } from "capnweb";
import { Pool } from "undici";

const [verb, ...rest] = process.argv.slice(2);

/** What a service answers. */
class Rest {
  #pool;
  constructor(url) {
    this.#pool = new Pool(url, { keepAliveTimeout: 300_000 });
  }
  async call(method, path, sent) {
    const headers = sent && { "content-type": "application/json" };
    const { statusCode, body } = await this.#pool.request({ method, path, headers, body: sent && JSON.stringify(sent) });
    if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode}`);
    return body.json();
  }
}

class Profile extends RpcTarget {
  #rest;
  constructor(url) { super(); this.#rest = new Rest(url); }
  buyers(limit) { return this.#rest.call("GET", `/buyers?limit=${Number(limit)}`); }
  freelancer(id) { return this.#rest.call("GET", `/freelancers/${Number(id)}`); }
  users(limit) { return this.#rest.call("GET", `/users?limit=${Number(limit)}`); }
  user(id) { return this.#rest.call("GET", `/users/${Number(id)}`); }
  notify(id, text) { return this.#rest.call("POST", `/users/${Number(id)}/notices`, { text }); }
}

class Catalog extends RpcTarget {
  #rest;
  constructor(url) { super(); this.#rest = new Rest(url); }
  posting(id) { return this.#rest.call("GET", `/catalogs/${Number(id)}`); }
  newest(buyer, limit) {
    return this.#rest.call("GET", `/catalogs?buyer=${Number(buyer)}&sort=-created&limit=${Number(limit)}`);
  }
}

class Order extends RpcTarget {
  #rest;
  constructor(url) { super(); this.#rest = new Rest(url); }
  orders(limit) { return this.#rest.call("GET", `/orders?limit=${Number(limit)}`); }
}

class Marketplace extends RpcTarget {
  #services;
  constructor(profile, catalog, order) {
    super();
    this.#services = { profile: new Profile(profile), catalog: new Catalog(catalog), order: new Order(order) };
  }
  get profile() { return this.#services.profile; }
  get catalog() { return this.#services.catalog; }
  get order() { return this.#services.order; }
}

function serve([host, port, ...services]) {
  const marketplace = new Marketplace(...services);
  const answer = (request, response) => nodeHttpBatchRpcResponse(request, response, marketplace);
  createServer({ keepAliveTimeout: 300_000 }, answer).listen(Number(port), host);
}

const pick = (row, fields) => row && Object.fromEntries(fields.map((field) => [field, row[field]]));

// A session is one batch, which is one request. What depends on an answer in the client needs another one.
const jobs = {
  async second(batch) {
    const api = batch();
    const buyers = api.profile.buyers(8);
    const lists = buyers.map((buyer) => api.catalog.newest(buyer.id, 2));
    const [people, postings] = await Promise.all([buyers, lists]);
    return people.map(({ name }, place) => ({ buyer: name, second: postings[place][1]?.title ?? null }));
  },
  async notify_admins(batch) {
    const api = batch();
    const users = await api.profile.users(16).map((user) => api.profile.user(user.id));
    const admins = users.filter((user) => user.roles.includes("admin")).map((user) => user.id);
    const { profile } = batch();
    await Promise.all(admins.map((id) => profile.notify(id, "Maintenance tonight at 22:00 UTC.")));
    return admins;
  },
  async orders(batch) {
    const api = batch();
    const orders = api.order.orders(50);
    const postings = orders.map((order) => api.catalog.posting(order.catalog_id));
    const people = orders.map((order) => api.profile.freelancer(order.freelancer_id));
    const [rows, catalogs, freelancers] = await Promise.all([orders, postings, people]);
    return rows.map((row, place) => ({
      ...row,
      catalog: pick(catalogs[place], ["id", "title", "price"]),
      freelancer: pick(freelancers[place], ["id", "name"]),
    }));
  },
};

/** Before those that count, for an engine that compiles what runs often. */
const WARM_UPS = 4;

async function ask([url, job, runs]) {
  const counts = { requests: 0, gzip_saves: 0 };
  const { fetch } = globalThis;
  globalThis.fetch = async (...request) => {
    counts.requests++;
    const answer = await fetch(...request);
    const body = Buffer.from(await answer.arrayBuffer());
    counts.gzip_saves += Math.max(0, body.length - gzipSync(body).length);
    return new Response(body, answer);
  };
  const told = { ms: [] };
  for (let run = -WARM_UPS; run < Number(runs); run++) {
    Object.assign(counts, { requests: 0, gzip_saves: 0 });
    const begun = performance.now();
    told.answer = await jobs[job](() => newHttpBatchRpcSession(url));
    if (run >= 0) told.ms.push(performance.now() - begun);
  }
  console.log(JSON.stringify({ ...told, ...counts }));
}

const version = () => {
  const file = new URL("../package.json", import.meta.resolve("capnweb"));
  return JSON.parse(readFileSync(file, "utf8")).version;
};

if (verb === "--version") console.log(`version: ${version()}`);
else if (verb === "serve") serve(rest);
else await ask(rest);
