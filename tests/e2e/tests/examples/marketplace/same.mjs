// same.mjs GATEWAY PROFILE CATALOG ORDER SEED COUNT: sends random queries about the marketplace to a gateway's
// GraphQL route, and answers each with graphql-js over the same rows in one process. Prints the differences,
// and fails if there are any.
//
// The schema comes from the gateway by introspection; `documents.mjs` generates the queries from it.
import { deepStrictEqual } from "node:assert";
import { createRequire } from "node:module";
import { random, documents } from "./documents.mjs";

const require = createRequire(new URL("../../../../../sdk/javascript/package.json", import.meta.url));
const { buildClientSchema, execute, getIntrospectionQuery, parse, validate } = require("graphql");

const [gateway, profile, catalog, order, seed, count] = process.argv.slice(2);

const get = async (url) => (await fetch(url)).json();

async function ask(body) {
  const headers = { "content-type": "application/json", accept: "application/json" };
  const response = await fetch(gateway, { method: "POST", headers, body: JSON.stringify(body) });
  return response.json();
}

const all = (rows, url) => Promise.all(rows.map(({ id }) => get(url(id))));

const [buyers, freelancers, catalogs, orders, list] = await Promise.all(
  [`${profile}/buyers`, `${profile}/freelancers`, `${catalog}/catalogs`, `${order}/orders`, `${profile}/users`].map(get),
);
const users = await all(list, (id) => `${profile}/users/${id}`);
const ratings = await all(buyers, (id) => `${order}/buyers/${id}/rating`);

// The meaning of the services' parameters.
const one = (rows, id) => rows.find((row) => row.id === id) ?? null;
const given = (value) => value !== undefined && value !== null;
// An empty list has no representation in a URL (RFC 6570, 2.3) and is left out; between two GraphQL services it
// is kept.
const isRest = !gateway.endsWith("/stitched");
const any = (ids, value) => !given(ids) || (isRest && ids.length === 0) || ids.includes(value);
const same = (wanted, value) => !given(wanted) || wanted === value;
const page = (rows, { limit, offset }) => rows.slice(offset ?? 0, given(limit) ? (offset ?? 0) + limit : undefined);
const time = (a, b) => (a.created < b.created ? -1 : a.created > b.created ? 1 : a.id - b.id);

function sorted(rows, sort) {
  if (!given(sort) || sort === "id") return rows;
  const up = rows.toSorted(time);
  return sort === "created" ? up : up.reverse();
}

function perBuyer(rows, most) {
  const seen = new Map();
  return rows.filter(({ buyer_id }) => {
    seen.set(buyer_id, (seen.get(buyer_id) ?? 0) + 1);
    return !given(most) || seen.get(buyer_id) <= most;
  });
}

const rating = (id) => ratings.find(({ buyer_id }) => buyer_id === id) ?? { buyer_id: id, stars: null, reviews: 0 };

const resolvers = {
  Query: {
    buyers: (_, a) => page(buyers.filter(({ id }) => any(a.ids, id)), a),
    buyer: (_, { id }) => one(buyers, id),
    freelancers: (_, a) => page(freelancers.filter(({ id }) => any(a.ids, id)), a),
    freelancer: (_, { id }) => one(freelancers, id),
    users: (_, a) => page(users.filter((u) => !given(a.role) || u.roles.includes(a.role)), a),
    user: (_, { id }) => one(users, id),
    notices: (_, { id }) => (one(users, id) ? [] : null),
    catalogs(_, a) {
      const found = catalogs.filter((c) => any(a.ids, c.id) && same(a.buyer, c.buyer_id) && any(a.buyers, c.buyer_id));
      return page(perBuyer(sorted(found, a.sort), a.per_buyer), a);
    },
    catalog: (_, { id }) => one(catalogs, id),
    orders(_, a) {
      const is = (o) => same(a.catalog, o.catalog_id) && same(a.freelancer, o.freelancer_id) && same(a.status, o.status);
      return page(sorted(orders.filter((o) => any(a.ids, o.id) && is(o)), a.sort), a);
    },
    order: (_, { id }) => one(orders, id),
    buyerRating: (_, { id }) => rating(id),
  },
  Buyer: {
    catalogs: ({ id }) => catalogs.filter((c) => c.buyer_id === id),
    newest: ({ id }) => sorted(catalogs, "_created").filter((c) => c.buyer_id === id).slice(0, 2),
    rating: ({ id }) => rating(id),
  },
  Catalog: { buyer: ({ buyer_id }) => one(buyers, buyer_id) },
  Freelancer: { orders: ({ id }) => orders.filter((o) => o.freelancer_id === id) },
  Order: {
    buyer: ({ buyer_id }) => one(buyers, buyer_id),
    catalog: ({ catalog_id }) => one(catalogs, catalog_id),
    freelancer: ({ freelancer_id }) => one(freelancers, freelancer_id),
  },
};

const { data, errors } = await ask({ query: getIntrospectionQuery() });
if (errors) throw new Error(JSON.stringify(errors));
const schema = buildClientSchema(data);
for (const [type, fields] of Object.entries(resolvers)) {
  for (const [field, resolve] of Object.entries(fields)) {
    const there = schema.getType(type)?.getFields()[field];
    if (!there) throw new Error(`the gateway's schema has no ${type}.${field}`);
    there.resolve = resolve;
  }
}
const extra = Object.keys(schema.getQueryType().getFields()).filter((field) => !resolvers.Query[field]);
if (extra.length > 0) throw new Error(`fields of Query without a resolver here: ${extra}`);

async function compare({ query, variables }) {
  const document = parse(query);
  const wrong = validate(schema, document);
  if (wrong.length > 0) throw new Error(`the generator made an invalid document: ${wrong[0].message}\n${query}`);
  const expected = JSON.parse(JSON.stringify(await execute({ schema, document, variableValues: variables })));
  const answer = await ask({ query, variables });
  try {
    deepStrictEqual(answer, expected);
    // The order of members must match as well.
    deepStrictEqual(JSON.stringify(answer.data), JSON.stringify(expected.data));
  } catch (error) {
    return `${error.message}\n${query}\nvariables: ${JSON.stringify(variables)}`;
  }
}

const made = documents(schema, random(Number(seed)), Number(count));
let otherwise = 0;
for (let place = 0; place < made.length; place += 8) {
  const found = await Promise.all(made.slice(place, place + 8).map(compare));
  for (const difference of found.filter(Boolean)) {
    otherwise += 1;
    if (otherwise <= 3) console.log(`${difference}\n`);
  }
}
console.log(`${made.length} documents, seed ${seed}: ${otherwise} answered differently`);
process.exitCode = otherwise === 0 ? 0 : 1;
