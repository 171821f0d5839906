// Calls programs with the client library and posts every result to the page's server.
import { orfa, OrfaError } from "/client.js";

const host = new URLSearchParams(location.search).get("gateway");
const gateway = orfa(host, { cache: false });

async function told(call) {
  try {
    return await call;
  } catch (error) {
    const { name, code, status, line, column, console, calls, retryAfter, body } = error;
    return { name, ours: error instanceof OrfaError, code, status, line, column, console, calls, retryAfter, body };
  }
}

const cancel = new AbortController();
const hanging = gateway.program((_, { up }) => up.get("/hang"))({}, { signal: cancel.signal });
fetch("/until").then(() => cancel.abort());

const report = {
  called: await told(gateway.program(async ({ n }, { up }) => (await up.get("/json", { n })).length)({ n: 3 })),
  typed: await told(
    gateway.program("export default ({ name }: { name: string }) => `Hi, ${name}`", {
      type: "text/typescript",
      safe: true,
    })({ name: "Zoë" }),
  ),
  bytes: [...(await gateway.program(() => new Uint8Array([1, 2]))())],
  nothing: await told(gateway.program(() => {})()),
  headers: (await gateway.program(() => 1).fetch({})).headers.get("server-timing"),
  threw: await told(
    gateway.program("export default () => {\n  console.log('here')\n  throw new Error('on purpose')\n}")(),
  ),
  limit: await told(
    gateway.program(() => {
      for (;;);
    })({}, { limits: { cpu: 20 } }),
  ),
  unsafe: await told(
    gateway.program(async (_, { up }) => {
      await up.post("/echo", {});
      throw new Error("afterwards");
    })(),
  ),
  away: await told(
    gateway.program(() => new Response("later", { status: 429, headers: { "retry-after": "3" } }))(),
  ),
  kept: await told(orfa(`${host}/closed`, { cache: false }).program(() => 1)()),
  cancelled: await told(hanging),
};
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
