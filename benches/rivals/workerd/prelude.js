// What runs around a program in its isolate: `services` as ORFA has them, by bindings.
import program from "program.js";

const path = (template, params) => {
  const query = new URLSearchParams(params);
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => {
    query.delete(name);
    return encodeURIComponent(params[name]);
  });
  return query.size ? `${filled}?${query}` : filled;
};

const service = (name, binding, authorization) => {
  const call = async (method, template, params, body) => {
    const headers = { ...(authorization && { authorization }), ...(body && { "content-type": "application/json" }) };
    const url = `http://${name}${path(template, params)}`;
    const answer = await binding.fetch(url, { method, headers, body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${url}: ${answer.status}`);
    return answer.json();
  };
  return {
    get: (template, params) => call("GET", template, params),
    post: (template, body, params) => call("POST", template, params, body),
    put: (template, body, params) => call("PUT", template, params, body),
  };
};

export default {
  async fetch(request, bindings) {
    const input = JSON.parse((await request.text()) || "{}");
    const authorization = request.headers.get("authorization");
    const services = new Proxy({}, { get: (_, name) => service(name, bindings[name], authorization) });
    const result = await program(input, services);
    return typeof result === "string" ? new Response(result) : Response.json(result);
  },
};
