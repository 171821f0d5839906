#!/usr/bin/env node
// openapi-to-graphql over a service, as the ORFA paper asks Memos and Gitea by GraphQL, on graphql-yoga.
// `wrapper.mjs HOST PORT UPSTREAM`; `wrapper.mjs --version`
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

// Both by `require`: what they import would be two copies of graphql.
const require = createRequire(import.meta.url);
const { createGraphQLSchema } = require("openapi-to-graphql");
const { createYoga } = require("graphql-yoga");

const [host, port, upstream] = process.argv.slice(2);
if (host === "--version") {
  const file = new URL("../package.json", `file://${require.resolve("openapi-to-graphql")}`);
  console.log(`version: ${JSON.parse(readFileSync(file, "utf8")).version}`);
} else {
  const document = JSON.parse(readFileSync(new URL("standins.json", import.meta.url)));
  const { schema } = await createGraphQLSchema(document, { baseUrl: `http://${upstream}`, operationIdFieldNames: true });
  const yoga = createYoga({ schema, logging: false, graphiql: false, landingPage: false, cors: false });
  createServer({ keepAliveTimeout: 300_000 }, yoga).listen(Number(port), host);
}
