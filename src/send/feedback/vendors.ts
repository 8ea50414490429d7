import { UNIT_MS } from "../../limits/duration.js";
import type { Dialect, Heard, Reading } from "./types.js";
import { readWindows, type WindowHeaders } from "./windows.js";

/** A vendor whose headers are all windows. */
interface Vendor {
  readonly name: string;
  /** Headers of which one must be there, where others use the same names; its value is told with the name. */
  readonly known?: readonly string[];
  readonly windows: readonly WindowHeaders[];
}

const MINUTE = UNIT_MS.m;
const DAY = UNIT_MS.d;

/** To add a vendor, add a row here and its headers, as documented, to test/send/feedback/vendors.test.ts. */
const VENDORS: readonly Vendor[] = [
  // https://platform.openai.com/docs/guides/rate-limits (also Azure, Groq, Mistral)
  {
    name: "OpenAI",
    windows: [
      { names: "x-ratelimit-*-requests" },
      { names: "x-ratelimit-*-tokens", unit: "tokens" },
      { names: "x-ratelimit-*-project-tokens", unit: "tokens" },
    ],
  },
  // https://docs.anthropic.com/en/api/rate-limits
  {
    name: "Anthropic",
    windows: [
      { names: "anthropic-ratelimit-requests-*", perMs: MINUTE },
      { names: "anthropic-ratelimit-tokens-*", unit: "tokens", perMs: MINUTE },
      { names: "anthropic-ratelimit-input-tokens-*", unit: "tokens", perMs: MINUTE },
      { names: "anthropic-ratelimit-output-tokens-*", unit: "tokens", perMs: MINUTE },
    ],
  },
  // https://docs.x.com/resources/fundamentals/rate-limits
  {
    name: "X",
    windows: [
      { names: "x-rate-limit-*" },
      { names: "x-user-limit-24hour-*", perMs: DAY },
      { names: "x-app-limit-24hour-*", perMs: DAY },
    ],
  },
  // What everybody else sends.
  { name: "X-RateLimit", windows: [{ names: "x-ratelimit-*" }] },
];

const windowsOf =
  ({ name, windows }: Vendor): Dialect =>
  (reading) =>
    readWindows(reading, name, windows);

/** The windows of GitHub's resources that are not those of `core`, 5,000 (or 60, or 15,000) an hour. */
const GITHUB: Readonly<Record<string, Pick<WindowHeaders, "unit" | "perMs">>> = {
  search: { perMs: MINUTE },
  code_search: { perMs: MINUTE },
  graphql: { perMs: UNIT_MS.h, unit: "points" },
};

/**
 * GitHub refuses with 403 as well as 429. A secondary limit says so in the body only, and names no time: then one
 * waits for at least a minute. https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
 */
function github(reading: Reading): Heard | undefined {
  if (reading.get("x-github-request-id") === undefined) return undefined;
  const resource = reading.get("x-ratelimit-resource") ?? "core";
  const row = { names: "x-ratelimit-*", ...(GITHUB[resource] ?? { perMs: UNIT_MS.h }) };
  const heard = readWindows(reading, `GitHub (${resource})`, [row]);
  if (heard?.pauseFor !== undefined) return heard;
  const secondary =
    reading.status === 429 || (reading.status === 403 && /secondary rate|abuse detection/i.test(reading.body));
  return secondary ? { ...heard, source: "GitHub (secondary limit)", pauseFor: MINUTE, refused: true } : heard;
}

/** Limits per route, per bot, or per resource that others use too; the last concerns that resource alone. */
function discord(reading: Reading): Heard | undefined {
  const bucket = reading.get("x-ratelimit-bucket");
  const scope = reading.get("x-ratelimit-scope");
  const isGlobal = reading.get("x-ratelimit-global") !== undefined;
  if (bucket === undefined && scope === undefined && !isGlobal) return undefined;
  const source = `Discord (${isGlobal ? "global" : bucket})`;
  const heard = readWindows(reading, source, [{ names: "x-ratelimit-*" }]) ?? { source };
  return scope === "shared" ? { ...heard, source: "Discord (shared)", alone: true } : heard;
}

/**
 * Stripe counts by the second and names the limit, but no time. One object, or a lock on it (429 without a reason),
 * concerns no other call; too many calls at once end by themselves. https://docs.stripe.com/rate-limits
 */
function stripe(reading: Reading): Heard | undefined {
  if (reading.status !== 429 || reading.get("stripe-version") === undefined) return undefined;
  const reason = reading.get("stripe-rate-limited-reason") ?? "lock";
  const source = `Stripe (${reason})`;
  if (reason.endsWith("-rate")) return { source, pauseFor: UNIT_MS.s, refused: true };
  return reason.endsWith("-concurrency") ? { source, refused: true } : { source, alone: true };
}

/** A bucket that leaks in 20 s whatever its size: 40 leak 2/s, 80 leak 4/s, 400 leak 20/s. Full, it has room soon. */
const SHOPIFY_MS = 20_000;

/** `32/40`: used and size. https://shopify.dev/docs/api/usage/limits */
function shopify(reading: Reading): Heard | undefined {
  const header = "x-shopify-shop-api-call-limit";
  const [, used, size] = /^(\d{1,9})\/([1-9]\d{0,8})$/.exec(reading.get(header) ?? "") ?? [];
  if (used === undefined || size === undefined) return undefined;
  const limit = Number(size);
  const remaining = Math.max(0, limit - Number(used));
  return {
    source: "Shopify",
    remaining,
    resetAfter: Math.min(SHOPIFY_MS, Math.ceil((Number(used) * SHOPIFY_MS) / limit)),
    pauseFor: remaining === 0 ? Math.ceil(SHOPIFY_MS / limit) : undefined,
    policies: [{ name: header, limit, perMs: SHOPIFY_MS, unit: "requests" }],
  };
}

/** In the order in which they are asked: whoever has a mark of its own before those that share its headers. */
export const vendors: readonly Dialect[] = [github, discord, stripe, shopify, ...VENDORS.map(windowsOf)];
