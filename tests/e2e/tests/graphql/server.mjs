// A GraphQL service by graphql-js. It prints its port and exits when its standard input ends. The only argument
// is the port, or 0.
import http from "node:http";
import { buildSchema, graphql } from "graphql";

const schema = buildSchema(`
  "A seller."
  type Agent { id: Int! name: String! "The credentials of the request." asker: String tags: [Tag!]! }
  enum Tag { NEW OLD }
  type Query { agents(ids: [Int!], first: Int = 10): [Agent!]! agent(id: Int!): Agent broken: String }
  type Mutation { rename(id: Int!, name: String!): Agent }
`);
const names = new Map([[1, "Ann"], [2, "Bob"], [3, "Cid"]]);

const agent = (request) => (id) => ({
  id,
  name: names.get(id),
  asker: request.headers.authorization ?? null,
  tags: id % 2 ? ["NEW"] : ["NEW", "OLD"],
});
const root = (request) => ({
  agents: ({ ids, first }) => (ids ?? [...names.keys()]).filter((id) => names.has(id)).slice(0, first).map(agent(request)),
  agent: ({ id }) => (names.has(id) ? agent(request)(id) : null),
  broken: () => { throw new Error("it is broken"); },
  rename: ({ id, name }) => { names.set(id, name); return agent(request)(id); },
});

const server = http.createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const { query: source, variables: variableValues, operationName } = JSON.parse(body);
  const answer = await graphql({ schema, source, variableValues, operationName, rootValue: root(request) });
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
});
server.listen(Number(process.argv.at(-1)), "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
