import type { Client } from "spillway";
import { Stripe } from "stripe";
import { expect, test, vi } from "vitest";
import { until } from "../helpers/wait.js";
import { type Account, all, expectOneRefusalEach, somebodyElse, throttled } from "./account.js";
import { openStripe } from "./servers/stripe.js";

vi.setConfig({ testTimeout: 40_000 });

const COUNT = 30;
const limit = { rate: "20/s", concurrency: 20 } as const;

const connect = ({ port }: Account, { fetch }: Client): Stripe =>
  new Stripe("sk_test_1", {
    host: "127.0.0.1",
    port,
    protocol: "http",
    httpClient: Stripe.createFetchHttpClient(fetch),
    telemetry: false,
  });

const pay = async (stripe: Stripe, amount: number): Promise<number> => {
  const options = { idempotencyKey: `order-${amount}` };
  return (await stripe.paymentIntents.create({ amount, currency: "eur" }, options)).amount;
};

const amounts = Array.from({ length: COUNT }, (_, i) => i);

test("Stripe within the limit is never refused, and asking twice pays once", async () => {
  await using account = await openStripe({ perSecond: 20 });
  await using pair = throttled({ [account.host]: limit });
  const stripes = pair.clients.map((client) => connect(account, client));
  expect(await all(COUNT, stripes, pay)).toEqual(amounts);
  expect(account.refused).toEqual([]);
  expect(account.arrivals.length).toBe(COUNT);
  expect(await all(1, stripes, pay)).toEqual([0]);
  expect(account.payments).toEqual(amounts);
});

test("Stripe is refused once a call at most when somebody else has used up the second", async () => {
  await using account = await openStripe({ perSecond: 20, shouldRetry: "true" });
  await using pair = throttled({ [account.host]: limit });
  const stripes = pair.clients.map((client) => connect(account, client));
  const paid = all(COUNT, stripes, pay);
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  await somebodyElse(account, "/v1/balance", 20);
  expect(await paid).toEqual(amounts);
  expectOneRefusalEach(account);
  expect(account.payments).toEqual(amounts);
});

test("where Stripe does not ask for another attempt, its SDK makes none, and a second call succeeds", async () => {
  await using account = await openStripe({ perSecond: 20 });
  await using pair = throttled({ [account.host]: limit });
  const stripes = pair.clients.map((client) => connect(account, client));
  const payTwice = (stripe: Stripe, amount: number): Promise<number> =>
    pay(stripe, amount).catch((error: unknown) => {
      if (!(error instanceof Stripe.errors.StripeRateLimitError)) throw error;
      return pay(stripe, amount);
    });
  const paid = all(COUNT, stripes, payTwice);
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  await somebodyElse(account, "/v1/balance", 20);
  expect(await paid).toEqual(amounts);
  expectOneRefusalEach(account);
  expect(account.payments).toEqual(amounts);
});

test("Stripe is refused once a call at most when its limit is half of what was declared, with adaptive", async () => {
  await using account = await openStripe({ perSecond: 12, shouldRetry: "true" });
  await using pair = throttled({ [account.host]: { ...limit, adaptive: true } });
  const stripes = pair.clients.map((client) => connect(account, client));
  expect(await all(COUNT, stripes, pay)).toEqual(amounts);
  expectOneRefusalEach(account);
  expect(account.payments).toEqual(amounts);
});
