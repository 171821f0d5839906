// Tests of the link in a real Apollo Client.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ApolloClient, ApolloLink, gql, HttpLink, InMemoryCache } from "@apollo/client";

import { dedupLink } from "../apollo.js";
import { gateway } from "./server.js";

const query = gql`{ posts { id by { id name } } }`;
const ada = { __typename: "User", id: "1", name: "Ada" };
const post = (id, by) => ({ __typename: "Post", id, by });
const data = { posts: [post("1", ada), post("2", ada)] };
const wire = { t: [ada], data: { posts: [post("1", { $: 0 }), post("2", { $: 0 })] } };

const dedup = { headers: { "content-type": "application/graphql-dedup+json;v=1" }, body: wire };
const plain = { headers: { "content-type": "application/graphql-response+json" }, body: { data } };

function client(url, options) {
  const link = ApolloLink.from([dedupLink(options), new HttpLink({ uri: url })]);
  return new ApolloClient({ link, cache: new InMemoryCache() });
}

test("Apollo Client requests deduplicated answers and caches them like plain ones", async (t) => {
  const { url, requests } = await gateway(t, () => dedup);
  const apollo = client(url);
  assert.deepEqual((await apollo.query({ query })).data, data);
  assert.deepEqual(apollo.readQuery({ query }), data);
  assert.deepEqual(Object.keys(apollo.cache.extract()).sort(), ["Post:1", "Post:2", "ROOT_QUERY", "User:1"]);
  apollo.writeFragment({ id: "User:1", fragment: gql`fragment F on User { name }`, data: { name: "Lady Ada" } });
  assert.deepEqual(apollo.readQuery({ query }).posts.map(({ by }) => by.name), ["Lady Ada", "Lady Ada"]);
  const asked = "application/graphql-dedup+json;v=1,application/graphql-response+json,application/json;q=0.9";
  assert.equal(requests[0].headers.accept, asked);
});

test("a server without support for the form works as usual", async (t) => {
  const { url } = await gateway(t, () => plain);
  assert.deepEqual((await client(url).query({ query })).data, data);
});

test("errors of the answer and of the form reach the caller", async (t) => {
  const errors = [{ message: "no posts today" }];
  const answers = [{ ...plain, body: { errors } }, { ...dedup, body: { t: [], data: { $: 0 } } }, dedup];
  const { url } = await gateway(t, () => answers.shift());
  await assert.rejects(client(url).query({ query }), { message: "no posts today" });
  await assert.rejects(client(url).query({ query }), { code: "dedup-reference" });
  await assert.rejects(client(url, { cap: 10 }).query({ query }), { code: "dedup-too-long" });
});
