// The handlers of `benches/programs/handlers.sjs` on Bun.serve, calling by fetch: `bun bun.mjs HOST PORT SERVICE`
const [hostname, port, service] = process.argv.slice(2);
const get = (path) => fetch(service + path);

Bun.serve({
  hostname,
  port: Number(port),
  idleTimeout: 255,
  routes: {
    "/composite": async ({ url }) => {
      const id = encodeURIComponent(new URL(url).searchParams.get("id"));
      const [user, items] = await Promise.all([
        get(`/user?id=${id}`).then((answer) => answer.json()),
        get(`/items?user=${id}`).then((answer) => answer.json()),
      ]);
      return Response.json({ ...user, items });
    },
    "/page": async () => {
      const text = await (await get("/page")).text();
      return Response.json({ words: text.match(/\bitem\b/g).length, links: text.match(/href="[^"]*"/g).length });
    },
  },
});
