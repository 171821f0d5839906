// What executing has to agree with: Apollo's composition makes the supergraph of every case of `runs/`, and graphql-js
// answers the case's documents over the schema that clients see of it, and all data. Both are kept beside the case.
//
// A case has services, the data of all of them, and documents with their variables. In the data stand by type `Query`'s and
// `Mutation`'s fields, and the objects of each type; `{"@": "User", "id": "1"}` is the object of that type that has these
// members. A field may also be `{"$error": why}`, `{"$find": type}` (by the arguments), `{"$echo": 1}` (the arguments as
// text), `{"$add": argument}` (what was added so far). `# answer` stands where services don't agree.
import { composeServices } from "@apollo/composition";
import { Supergraph } from "@apollo/federation-internals";
import { graphql, parse } from "graphql";
import { parts, services } from "./cases.mjs";

const sortedText = (value) =>
  JSON.stringify(value, (_, inner) =>
    inner && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );

// graphql-js over all data.
const executor = (schema, data) => {
  const sums = {};
  const known = (type, members) => {
    const found = (data[type] ?? []).find((object) =>
      Object.entries(members).every(([name, value]) => sortedText(object[name]) === sortedText(value)),
    );
    return found ? { __typename: type, ...found } : null;
  };
  const value = (given, args) => {
    if (Array.isArray(given)) return given.map((item) => value(item, args));
    if (given === null || typeof given !== "object") return given ?? null;
    const { "@": type, ...members } = given;
    if (type) return known(type, members);
    if (given.$error) return new Error(given.$error);
    if (given.$find) return known(given.$find, args);
    if (given.$echo) return sortedText(args);
    if (given.$add) return (sums[0] = (sums[0] ?? 0) + args[given.$add]);
    return given;
  };
  const fieldResolver = (object, args, _, info) => {
    const given = value(object[info.fieldName], args);
    if (given instanceof Error) throw given;
    return given;
  };
  return (source, variableValues) =>
    graphql({
      schema, source, variableValues, fieldResolver,
      rootValue: /^\s*mutation/.test(source) ? data.Mutation : data.Query,
      typeResolver: (object) => object.__typename,
    });
};

// What Apollo's composition makes of services.
export const supergraph = (services) => {
  const { supergraphSdl, errors } = composeServices(services);
  if (errors) throw new Error(errors.map((error) => error.message).join("\n"));
  return supergraphSdl.trim();
};

// The supergraph and the answers of a case.
export const run = async (text) => {
  const start = text.indexOf("# data\n");
  const [head, rest] = [text.slice(0, start), text.slice(start)];
  const sdl = supergraph(services(head, parse));
  const schema = Supergraph.build(sdl).apiSchema().toGraphQLJSSchema();
  const data = JSON.parse(rest.slice("# data\n".length, rest.indexOf("\n# ask")));
  const answer = executor(schema, data);
  const answers = [];
  for (const [, asked] of parts(rest, "# ask")) {
    const [query, ...further] = asked.split(/^# (?=variables|answer)/m);
    const section = (name) => further.find((one) => one.startsWith(`${name}\n`))?.slice(name.length + 1).trim();
    const { data, errors } = await answer(query, JSON.parse(section("variables") ?? "{}"));
    const told = errors?.map(({ message, path }) => ({ message, path }));
    answers.push(section("answer") ?? JSON.stringify({ data, ...(told && { errors: told }) }));
  }
  return `# supergraph\n${sdl}\n# answers\n${answers.join("\n")}\n`;
};
