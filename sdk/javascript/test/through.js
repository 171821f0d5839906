// Tests Apollo Client against the gateway at the URL: `node test/through.js http://127.0.0.1:8080/graphql`.
import assert from "node:assert/strict";
import { ApolloClient, ApolloLink, gql, HttpLink, InMemoryCache } from "@apollo/client";

import { dedupLink } from "../apollo.js";

const query = gql`{ posts { id by { id name } } }`;
const [uri] = process.argv.slice(2);
const types = [];

async function posts(links) {
  const seen = async (...asked) => {
    const answer = await fetch(...asked);
    types.push(answer.headers.get("content-type"));
    return answer;
  };
  const link = ApolloLink.from([...links, new HttpLink({ uri, fetch: seen })]);
  const { data } = await new ApolloClient({ link, cache: new InMemoryCache() }).query({ query });
  return data.posts;
}

const plain = await posts([]);
assert.deepEqual(await posts([dedupLink()]), plain);
assert.deepEqual(types, ["application/graphql-response+json", "application/graphql-dedup+json;v=1"]);
assert.deepEqual([plain.length, plain[29].by.name], [30, "Ada Lovelace, Countess of"]);
