// Plays the audits of the GraphQL-over-HTTP specification on a server, and prints those that it does not pass.
import { serverAudits } from "graphql-http";

const audits = serverAudits({ url: process.argv.at(-1), fetchFn: fetch });
const failed = [];
for (const audit of audits) {
  const { status, reason } = await audit.fn();
  if (status !== "ok") failed.push(`${audit.id} ${audit.name}: ${reason}`);
}
console.log(JSON.stringify({ played: audits.length, failed }));
