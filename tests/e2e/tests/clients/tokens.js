// Calls programs more than once with the client library. Reports the answers, and for each request the value of
// `ORFA-Cache` without its token and the length of the body.
import { orfa } from "/client.js";

const host = new URLSearchParams(location.search).get("gateway");
const sent = [];

function page() {
  return orfa(host, {
    store: localStorage,
    fetch(url, init) {
      sent.push([init.headers.get("orfa-cache").replace(/:.*/, ""), init.body.length]);
      return fetch(url, init);
    },
  });
}

const add = (own) => own.program(({ a, b }) => a + b);
const first = add(page());
const answers = [await first({ a: 1, b: 2 }), await first({ a: 3, b: 4 })];
answers.push(await add(page())({ a: 5, b: 6 }));
// A token unknown to the gateway, as after a change of its key.
const [shelf] = Object.keys(localStorage);
localStorage[shelf] = localStorage[shelf].replace(/token=:.*?:/, `token=:${btoa("of another time")}:`);
const later = add(page());
answers.push(await later({ a: 7, b: 8 }), await later({ a: 9, b: 1 }));
const byHash = page().program(({ a, b }) => a - b, { hash: true });
answers.push(await byHash({ a: 3, b: 2 }), await byHash({ a: 3, b: 1 }));

await fetch("/report", { method: "POST", body: JSON.stringify({ answers, sent }) });
