// A subgraph of Apollo Federation by graphql-js. It prints its port and exits when its standard input ends. The
// argument is the file of its schema.
import { readFileSync } from "node:fs";
import http from "node:http";
import { buildSchema, graphql } from "graphql";

const file = process.argv.at(-1);
const sdl = readFileSync(file, "utf8");
const schema = buildSchema(
  `${sdl} scalar _Any union _Entity = Product type _Service { sdl: String! }
   extend type Query { _service: _Service! _entities(representations: [_Any!]!): [_Entity]! }`,
  { assumeValidSDL: true },
);

const products = new Map([
  ["1", { upc: "1", name: "table", price: 899, weight: 30 }],
  ["2", { upc: "2", name: "chair", price: 54, weight: 5 }],
]);
const product = ({ upc }) => products.get(upc) ?? null;
const written = [{ upc: "2", body: "sturdy" }, { upc: "1", body: "wide" }];
const review = ({ upc, body }) => ({ body, product: reviewed({ upc }) });
// Apart from the key, the fields of a product come from its representation.
const reviewed = ({ upc, weight }) => ({
  upc,
  shipping: () => (weight === undefined ? new Error("the weight was not sent") : weight * 2),
  reviews: () => written.filter((one) => one.upc === upc).map(review),
});

const [resolve, root] = file.endsWith("products.graphql")
  ? [product, {
      products: () => [...products.values()],
      product,
      price: ({ upc, price }) => Object.assign(products.get(upc), { price }),
    }]
  : [reviewed, {
      latest: () => review(written.at(-1)),
      review: (given) => { written.push(given); return review(given); },
    }];
const rootValue = {
  ...root,
  _service: { sdl },
  _entities: ({ representations }) =>
    representations.map((known) => {
      const entity = resolve(known);
      return entity && { __typename: "Product", ...entity };
    }),
};

const server = http.createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const { query: source, variables: variableValues, operationName } = JSON.parse(body);
  const answer = await graphql({ schema, source, variableValues, operationName, rootValue });
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
