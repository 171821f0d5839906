// Tests of the types: this file is checked by tsc, and never run.
import { orfa, OrfaError, type Callable } from "@orfa/client";
import { decode, GRAPHQL_TYPE } from "@orfa/client/dedup";
import type { Service } from "@orfa/client/program";

const gateway = orfa("https://api.example.org", { headers: () => ({ a: "b" }), store: localStorage, fetch });

// The types of a function's calls are inferred.
const sum = gateway.program(async ({ n }: { n: number }, { up }: { up: Service }) => n + (await up.get<number>("/n")));
const answer: Promise<number> = sum({ n: 1 }, { signal: AbortSignal.timeout(1), limits: { cpu: 5 } });
// @ts-expect-error: the program needs its input
sum();
// @ts-expect-error: another input
sum({ n: "1" });
// @ts-expect-error: no such limit
sum({ n: 1 }, { limits: { cups: 5 } });

// By default services have any name.
export const any = gateway.program(({ n }: { n: number }, { up }) => up?.get("/json", { n }));
// @ts-expect-error: a service has no such method
gateway.program((_: {}, { up }) => up?.fly());

// An optional input, and answers without a body or of any type.
const nothing: Promise<null> = gateway.program(({ n = 8 }: { n?: number }) => void n)();
const anything: Promise<string> = gateway.program(() => new Response("x"))();
const response: Promise<Response> = sum.fetch({ n: 1 });

// Programs as text and stored programs have no inferred types.
const named: Callable<{ customer: number }, string[]> = gateway.stored("orders", { method: "GET" });
const text: Promise<any> = gateway.program("export default () => 1", { type: "text/typescript", hash: true })();
// @ts-expect-error: not a mode
gateway.program("", { cache: "disk" });

export function told(error: unknown) {
  if (!(error instanceof OrfaError)) throw error;
  const place: [string, number | undefined, number | undefined] = [error.code, error.line, error.retryAfter];
  return [place, error.calls?.map(({ service, status }) => `${service} ${status}`), answer, nothing, anything];
}
export const rest = [response, named, text];
// @ts-expect-error: only the client constructs errors
new OrfaError();

// Deduplicated bodies.
export const decoded: { data: unknown } = decode(JSON.parse("{}"), 1e6);
export const type: `application/${string}` = GRAPHQL_TYPE;
orfa("/query", { dedup: false });
// @ts-expect-error: not a boolean
orfa("/query", { dedup: "no" });
