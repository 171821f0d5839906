// What Node.js brings along to use several cores: `cluster`. Workers share the port; what they share otherwise, the primary
// keeps in its memory and they ask it for by messages.
import cluster from "node:cluster";
import { createServer } from "node:http";

/**
 * Runs a service.
 * @param {Record<string, (...given: any[]) => any>} shared what the primary does, by name
 * @param {Record<string, (query: any, ask: (name: string, ...given: any[]) => Promise<any>) => Promise<any>>} handlers
 *   by method and path; each answers a body, or `{ status, location }`
 */
export function serve(shared, handlers) {
  const [host, port, workers] = process.argv.slice(2);
  if (cluster.isPrimary) {
    for (let n = 0; n < Number(workers); n++) cluster.fork();
    cluster.on("message", (worker, { id, name, given }) => worker.send({ id, answer: shared[name](...given) }));
    return;
  }
  const asked = new Map();
  process.on("message", ({ id, answer }) => {
    asked.get(id)(answer);
    asked.delete(id);
  });
  let last = 0;
  const ask = (name, ...given) =>
    new Promise((resolve) => {
      asked.set(++last, resolve);
      process.send({ id: last, name, given });
    });
  const server = createServer({ keepAliveTimeout: 300_000 }, async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    const handler = handlers[`${request.method} ${url.pathname.split("/", 2).join("/")}`];
    try {
      const query = { ...Object.fromEntries(url.searchParams), path: url.pathname };
      if (request.method === "POST") Object.assign(query, await body(request));
      const answer = await handler(query, ask);
      if (answer?.location) response.writeHead(302, { location: answer.location }).end();
      else if (answer === undefined) response.writeHead(204).end();
      else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    } catch (error) {
      response.writeHead(500).end(String(error?.stack));
    }
  });
  server.listen({ host, port: Number(port), backlog: 4096 });
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString());
}

/** Sends a request and reads its answer to the end, so that the connection can be used again. */
export async function send(method, url) {
  const answer = await fetch(url, { method });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${text}`);
  return text;
}

/** Where the service itself is. */
export const self = () => `http://${process.argv[2]}:${process.argv[3]}`;
