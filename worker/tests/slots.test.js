// Runs and calls are found by their numbers, independently of other entries.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Slots } from "../slots.js";
import { law } from "./random.js";

test("an entry exists from its insertion to its deletion, even beside long-lived ones", () =>
  law(50, (r) => {
    const slots = new Slots();
    const there = [];
    let last = 0;
    for (let step = 0; step < 2000; step++) {
      if (there.length < 2 || (there.length < 300 && r.chance(0.6))) {
        const entry = { id: (last += 1 + r.below(r.pick([1, 1, 700, 2048]))) };
        slots.add(entry);
        there.push(entry);
      } else {
        // The first entry is never deleted.
        const [{ id }] = there.splice(1 + r.below(there.length - 1), 1);
        slots.delete(id);
        assert.equal(slots.get(id), undefined);
      }
      if (step % 50 === 0) for (const entry of there) assert.equal(slots.get(entry.id), entry);
    }
  }));
