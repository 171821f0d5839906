// Sends the tests' requests from a page of any origin, without a library, and posts the results to the page's
// server.
const gateway = new URLSearchParams(location.search).get("gateway");

const program = 'export default async ({ n }, { up }) => (await up.get("/json", { n })).length';
const input = '{"n":3}';
const types = { "content-type": "text/javascript", "orfa-input": String(input.length), "orfa-limit": "calls=5" };

// Sends a request and returns the readable parts of its response, or the name of the error.
async function ask(path, options = {}) {
  try {
    const answer = await fetch(gateway + path, options);
    const text = await answer.text();
    return { status: answer.status, timing: answer.headers.get("server-timing"), text };
  } catch (error) {
    return { refused: error.name };
  }
}

const report = {
  query: await ask("/query", { method: "POST", headers: types, body: input + program }),
  method: await ask("/query", { method: "QUERY", headers: types, body: input + program }),
  threw: await ask("/query", {
    method: "POST",
    headers: { "content-type": "text/javascript" },
    body: 'export default () => { throw new Error("on purpose") }',
  }),
  nowhere: await ask("/nowhere"),
  dead: await ask("/dead"),
  plain: await ask("/echo"),
  cookies: await ask("/echo", { credentials: "include" }),
  cookiesUnwanted: await ask("/anonymous", { credentials: "include" }),
  anonymous: await ask("/anonymous"),
  header: await ask("/echo", { headers: { "x-shop": "7" } }),
  headerUnlisted: await ask("/echo", { headers: { "x-other": "7" } }),
};
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
