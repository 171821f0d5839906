// `examples/mapreduce/mapreduce.sjs` on a cluster: `mapreduce.mjs HOST PORT WORKERS`
import { self, send, serve } from "./cluster.mjs";

const sums = [];
const scan = (page, key) => page.split(key).length - 1;

serve(
  { start: () => sums.push(0), add: (id, count) => void (sums[id - 1] += Number(count)), sum: (id) => sums[id - 1] },
  {
    "POST /start": async ({ urls, key }, ask) => {
      const id = await ask("start");
      for (const url of urls) {
        send("PUT", `${self()}/map?url=${encodeURIComponent(url)}&key=${encodeURIComponent(key)}&id=${id}`).catch(console.error);
      }
      return { location: `/red/${id}` };
    },
    "PUT /map": async ({ url, key, id }) => {
      const page = await send("GET", url);
      await send("PUT", `${self()}/red/${id}?count=${scan(page, key)}`);
    },
    "PUT /red": ({ path, count }, ask) => ask("add", path.split("/")[2], count),
    "GET /red": ({ path }, ask) => ask("sum", path.split("/")[2]),
  },
);
