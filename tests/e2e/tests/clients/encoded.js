// Reads an answer that the gateway deduplicates and compresses; equal objects must be one object.
import { orfa } from "/client.js";

const host = new URLSearchParams(location.search).get("gateway");
const people = await orfa(host).program(() => Array(300).fill({ name: "Grace Hopper", of: "Yale" }))();
const report = { length: people.length, last: people[299], isOne: people[0] === people[299] };
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
