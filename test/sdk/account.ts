import type { ServerResponse } from "node:http";
import { type Client, createClient, defineLimits, type LimitOptions } from "spillway";
import { expect } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { type Arrival, startUpstream } from "../helpers/upstream.js";

/** Time from an arrival to its answer: what has arrived meanwhile is in flight. */
const LATENCY_MS = 120;
/** What was about to start when a refusal was answered still arrives; on a busy machine, so much later at most. */
const ON_THE_WAY_MS = 300;
/** Limits let 20 calls a second through in all of these tests, so that no more are in flight than these. */
const MOST_IN_FLIGHT = 1 + Math.ceil(((LATENCY_MS + ON_THE_WAY_MS) * 20) / 1_000);

/** What the header `x-call` of those says who use the same account without waiting for anybody. */
const SOMEBODY_ELSE = "somebody else";

/** A quota as vendors count it: so many units in a window that opens with the first call that finds none open. */
export class Window {
  readonly limit: number;
  readonly perMs: number;
  #used = 0;
  #endsAt = 0;

  constructor(limit: number, perMs: number) {
    this.limit = limit;
    this.perMs = perMs;
  }

  /** @param at ms since 1970. */
  has(at: number, cost: number): boolean {
    if (at >= this.#endsAt) {
      this.#used = 0;
      this.#endsAt = at + this.perMs;
    }
    return this.#used + cost <= this.limit;
  }

  take(cost: number): void {
    this.#used += cost;
  }

  get remaining(): number {
    return this.limit - this.#used;
  }

  /** Ms since 1970. */
  get endsAt(): number {
    return this.#endsAt;
  }
}

type Head = Readonly<Record<string, string>>;

/** What a vendor does with one call. Its limits are asked when the call arrives; the answer comes later. */
export interface Vendor {
  /** Which call of the test this is, the same for each of its attempts. */
  id(arrival: Arrival): string;
  /** Whether the limits let it through; counts it. */
  accepts(arrival: Arrival, at: number): boolean;
  /** The headers of each answer: how the limits stand when it has been decided. */
  head(arrival: Arrival): Head;
  /** Returns how long it asks to be left alone, in ms. */
  refuse(response: ServerResponse, arrival: Arrival, head: Head): number;
  serve(response: ServerResponse, arrival: Arrival, head: Head): unknown;
}

/** A server that looks like that of a vendor, and what it saw of the test's own calls. */
export interface Account extends AsyncDisposable {
  readonly url: string;
  /** Host and port. */
  readonly host: string;
  readonly port: number;
  /** Of the test, without those of somebody else. */
  readonly arrivals: readonly Arrival[];
  readonly refused: readonly Arrival[];
  /** The most often that one and the same call was refused. */
  readonly mostRefusals: number;
  /** How long the first refusal asked to be left alone, in ms. */
  readonly pauseMs: number;
}

const isOurs = ({ headers }: Arrival): boolean => headers["x-call"] !== SOMEBODY_ELSE;

export async function openAccount(vendor: Vendor): Promise<Account> {
  let pauseMs = Number.NaN;
  const upstream = await startUpstream({
    bodies: true,
    async handler(_request, response, arrival) {
      arrival.refused = !vendor.accepts(arrival, performance.timeOrigin + arrival.at);
      const head = vendor.head(arrival);
      await new Promise((resolve) => setTimeout(resolve, LATENCY_MS));
      if (!arrival.refused) await vendor.serve(response, arrival, head);
      else {
        const asked = vendor.refuse(response, arrival, head);
        if (Number.isNaN(pauseMs) && isOurs(arrival)) pauseMs = asked;
      }
    },
  });
  const { url, host } = upstream;
  const account: Account = {
    url,
    host,
    port: Number(new URL(url).port),
    get arrivals() {
      return upstream.arrivals.filter(isOurs);
    },
    get refused() {
      return account.arrivals.filter(({ refused }) => refused);
    },
    get mostRefusals() {
      const counts = new Map<string, number>();
      for (const one of account.refused) counts.set(vendor.id(one), (counts.get(vendor.id(one)) ?? 0) + 1);
      return Math.max(0, ...counts.values());
    },
    get pauseMs() {
      return pauseMs;
    },
    [Symbol.asyncDispose]: () => upstream.close(),
  };
  return account;
}

/** Two clients for the same limits, as two processes have them. */
export interface Pair extends AsyncDisposable {
  readonly clients: readonly [Client, Client];
}

/** The servers are in this process, too, and see what arrives when the process has time: hence the lateness. */
export function throttled(limits: Readonly<Record<string, LimitOptions>>): Pair {
  const patient = Object.entries(limits).map(([pattern, limit]) => [pattern, { lateness: "100ms", ...limit }]);
  const options = { redis: redisUrl(), prefix: uniquePrefix(), limits: defineLimits(Object.fromEntries(patient)) };
  const clients = [createClient({ ...options, worker: true }), createClient({ ...options, worker: true })] as const;
  const close = async (): Promise<void> => {
    await Promise.all(clients.map((client) => client.close()));
  };
  return { clients, [Symbol.asyncDispose]: close };
}

/** Somebody else calls, so many times at once, and heeds nothing. */
export async function somebodyElse(
  account: Account,
  path: string,
  count: number,
  init: Pick<RequestInit, "method" | "body"> = {},
): Promise<void> {
  const headers = { "x-call": SOMEBODY_ELSE };
  const call = async (): Promise<unknown> => (await fetch(account.url + path, { ...init, headers })).text();
  await Promise.all(Array.from({ length: count }, call));
}

/** The results of so many calls that are made at once, by each of these SDKs in turn. */
export const all = <S, T>(count: number, sdks: readonly S[], call: (sdk: S, i: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => call(sdks[i % sdks.length] as S, i)));

/** Expects that calls were refused, and of them what {@link expectOneRefusalAtMost} says. */
export function expectOneRefusalEach(account: Account): void {
  expect(account.refused.length).toBeGreaterThan(0);
  expectOneRefusalAtMost(account);
}

/**
 * Expects that each call that was refused was on its way when the first refusal was answered, and was refused once; and
 * that nothing came from then on until the server wanted to be called again.
 */
export function expectOneRefusalAtMost({ arrivals, refused, mostRefusals, pauseMs }: Account): void {
  expect(mostRefusals).toBeLessThanOrEqual(1);
  const [{ at: first } = { at: Infinity }] = refused;
  const answered = first + LATENCY_MS;
  const inFlight = arrivals.filter(({ at }) => at >= first && at <= answered + ON_THE_WAY_MS);
  expect(refused.length).toBeLessThanOrEqual(inFlight.length);
  expect(inFlight.length).toBeLessThanOrEqual(MOST_IN_FLIGHT);
  const later = arrivals.filter(({ at }) => at > answered + ON_THE_WAY_MS);
  expect(later.filter((arrival) => arrival.refused)).toEqual([]);
  // Two clocks are read, one of them in whole ms.
  expect(later.filter(({ at }) => at < answered + pauseMs - 10)).toEqual([]);
}
