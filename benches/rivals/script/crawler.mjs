// `examples/crawler/crawler.sjs` on a cluster: `crawler.mjs HOST PORT WORKERS`
import { self, send, serve } from "./cluster.mjs";

const urls = [];
const scan = (page) => page.match(/(?<=href=")[^"]+/g) || [];

serve(
  { discovered: (url) => void urls.push(url), list: () => urls },
  {
    "PUT /crawl": async ({ startFrom, depth }) => {
      const list = scan(await send("GET", startFrom));
      if (depth <= 1) return;
      await Promise.all(
        list.flatMap((url) => [
          send("PUT", `${self()}/crawl?startFrom=${encodeURIComponent(url)}&depth=${depth - 1}`),
          send("PUT", `${self()}/urlsDiscovered?val=${encodeURIComponent(url)}`),
        ]),
      );
    },
    "PUT /urlsDiscovered": ({ val }, ask) => ask("discovered", val),
    "GET /urlsDiscovered": (_, ask) => ask("list"),
  },
);
