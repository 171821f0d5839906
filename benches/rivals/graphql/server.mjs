#!/usr/bin/env node
// GraphQL that answers "hello world", as in the ORFA paper's table 5: graphql-yoga on Node's own server.
// `server.mjs HOST PORT`; `server.mjs --version`
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createSchema, createYoga } from "graphql-yoga";

const schema = createSchema({
  typeDefs: "type Query { hello: String! }",
  resolvers: { Query: { hello: () => "hello world" } },
});
const yoga = createYoga({ schema, logging: false, graphiql: false, landingPage: false, cors: false });
const [host, port] = process.argv.slice(2);
if (host === "--version") {
  console.log(`version: graphql-yoga ${createRequire(import.meta.url)("graphql-yoga/package.json").version}`);
} else {
  createServer({ keepAliveTimeout: 300_000 }, yoga).listen(Number(port), host);
}
