// Calls stored programs by name, by version and with every method.
import { orfa, OrfaError } from "/client.js";

const gateway = orfa(new URLSearchParams(location.search).get("gateway"));
const headers = { authorization: "Bearer of-the-page" }; // forces a preflight for GET as well

const version = async (text) => {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
};
const hash = await version("export default ({ n }) => Number(n) + 1");

const report = {
  post: await gateway.stored("next")({ n: 1 }),
  get: await gateway.stored("next", { method: "GET", headers })({ n: 2 }),
  query: await gateway.stored("next", { method: "QUERY" })({ n: 3 }),
  version: await gateway.stored(`next@${hash}`)({ n: 4 }),
  gone: await gateway.stored("gone")().catch((error) => ({ ours: error instanceof OrfaError, status: error.status })),
};
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
