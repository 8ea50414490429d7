// @ts-check
// What would other limits have made of the calls of an hour? Nothing is sent, and the hour takes a moment.
import { writeFileSync } from "node:fs";
import { defineLimits, drawSimulations, simulate } from "spillway";

// As they may stand in a log: every ten minutes 200 calls at once, else one each 5 s.
const arrivals = Array.from({ length: 720 }, (_, i) => i * 5000)
  .flatMap((at) => (at % 600_000 === 0 ? Array.from({ length: 200 }, () => at) : at))
  .map((at) => ({ at, url: "https://api.example.com/items" }));

const seen = async (/** @type {import("spillway").LimitOptions} */ options) =>
  simulate(defineLimits({ "api.example.com": options }), arrivals);
const policies = {
  "1/s": await seen({ rate: "1/s" }),
  "1/s, 100 may wait": await seen({ rate: "1/s", capacity: 100 }),
  "5/s, 2000/h": await seen({ rate: "5/s", rules: ["2000/h"] }),
};
for (const [name, { total }] of Object.entries(policies)) {
  const { offered, sent, wait } = total;
  console.log(
    `${name}: ${sent} of ${offered} sent, half of them within ${wait.p50 / 1000} s, all within ${wait.max / 1000} s`,
  );
}
if (process.argv[2] !== undefined) writeFileSync(process.argv[2], drawSimulations(policies));
