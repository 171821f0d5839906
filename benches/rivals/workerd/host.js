// A host for programs that clients send, on workerd's worker loader: what ORFA does, in thirty lines. A
// program is the one that ORFA takes. Its first answer carries a token, by which the next request names
// it. Isolates are kept as long as workerd likes.
import prelude from "prelude";

const bytes = (buffer) => new Uint8Array(buffer);
const hex = (buffer) => bytes(buffer).toHex();

async function named(request) {
  const token = request.headers.get("token");
  if (token) return { token, input: await request.text() };
  const body = bytes(await request.arrayBuffer());
  const length = Number(request.headers.get("input"));
  const program = body.subarray(length);
  const hash = hex(await crypto.subtle.digest("SHA-256", program)).slice(0, 32);
  const decode = (part) => new TextDecoder().decode(part);
  return { token: hash, input: decode(body.subarray(0, length)), program: decode(program) };
}

export default {
  async fetch(request, { loader, ...services }) {
    const { token, input, program } = await named(request);
    const code = () => {
      if (program === undefined) throw new Error("unknown token: send the program");
      const modules = { "main.js": prelude, "program.js": program };
      return { compatibilityDate: "2026-01-01", mainModule: "main.js", modules, env: services, globalOutbound: null };
    };
    const worker = loader.get(token, code).getEntrypoint();
    const authorization = request.headers.get("authorization");
    const headers = authorization ? { authorization } : {};
    const answer = await worker.fetch("http://program/", { method: "POST", headers, body: input });
    return new Response(answer.body, { status: answer.status, headers: { "content-type": answer.headers.get("content-type"), token } });
  },
};
