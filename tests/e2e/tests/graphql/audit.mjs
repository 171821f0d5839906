// Runs the audits of the GraphQL-over-HTTP specification against a server, and prints the failed ones.
import { serverAudits } from "graphql-http";

const audits = serverAudits({ url: process.argv.at(-1), fetchFn: fetch });
const failed = [];
for (const audit of audits) {
  const { status, reason } = await audit.fn();
  if (status !== "ok") failed.push(`${audit.id} ${audit.name}: ${reason}`);
}
console.log(JSON.stringify({ played: audits.length, failed }));
