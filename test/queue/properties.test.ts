import fc from "fast-check";
import { expect, test } from "vitest";
import { listen } from "../helpers/scripts.js";
import { histories, options, replay } from "./replay.js";

test("any interleaving: capacity, order, concurrency, and every call ends once", { timeout: 60_000 }, async () => {
  await using listener = await listen("alive");
  await fc.assert(fc.asyncProperty(options, histories, replay), { numRuns: 120 });
  expect(await listener.heard()).toEqual([]);
});
