import type { Arrival } from "../../helpers/upstream.js";
import { type Account, openAccount, Window } from "../account.js";

export interface StripeAccount extends Account {
  /** Amounts of the payments that were made, smallest first. */
  readonly payments: readonly number[];
}

/** What a key stands for: the request, of which there is one, and its answer. */
interface Payment {
  readonly body: string;
  readonly answer: string;
}

/**
 * Stripe's payments: so many calls in a second, refused with the name of the limit and no time; and one payment for each
 * idempotency key, however often it is asked for. https://docs.stripe.com/rate-limits
 *
 * @param options.shouldRetry what a refusal says about another attempt; Stripe's SDK makes none unless it is "true".
 */
export async function openStripe(options: {
  readonly perSecond: number;
  readonly shouldRetry?: "true" | "false";
}): Promise<StripeAccount> {
  const rate = new Window(options.perSecond, 1_000);
  const payments = new Map<string, Payment>();
  const keyOf = ({ headers }: Arrival): string => String(headers["idempotency-key"]);
  const account = await openAccount({
    id: keyOf,
    accepts(_arrival, at) {
      const room = rate.has(at, 1);
      if (room) rate.take(1);
      return room;
    },
    head: (arrival) => ({
      "content-type": "application/json",
      ...(arrival.method === "POST" && { "idempotency-key": keyOf(arrival) }),
      "request-id": "req_1",
      "stripe-version": String(arrival.headers["stripe-version"] ?? "2026-01-01"),
    }),
    refuse(response, _arrival, head) {
      const { shouldRetry } = options;
      const message = "Request rate limit exceeded.";
      response
        .writeHead(429, {
          ...head,
          "stripe-rate-limited-reason": "global-rate",
          ...(shouldRetry && { "stripe-should-retry": shouldRetry }),
        })
        .end(JSON.stringify({ error: { type: "invalid_request_error", code: "rate_limit", message } }));
      return rate.endsAt - Date.now();
    },
    serve(response, arrival, head) {
      if (arrival.method === "GET") {
        response.writeHead(200, head).end(JSON.stringify({ object: "balance" }));
        return;
      }
      const [key, body] = [keyOf(arrival), arrival.body ?? ""];
      const amount = Number(new URLSearchParams(body).get("amount"));
      const known = payments.get(key);
      if (known !== undefined && known.body !== body) {
        const message =
          "Keys for idempotent requests can only be used with the same parameters they were first used with.";
        response.writeHead(400, head).end(JSON.stringify({ error: { type: "idempotency_error", message } }));
        return;
      }
      const answer = JSON.stringify({ id: `pi_${amount}`, object: "payment_intent", amount, currency: "eur" });
      const payment = known ?? { body, answer };
      payments.set(key, payment);
      response.writeHead(200, { ...head, ...(known && { "idempotent-replayed": "true" }) }).end(payment.answer);
    },
  });
  const amounts = (): number[] =>
    [...payments.values()].map(({ body }) => Number(new URLSearchParams(body).get("amount"))).toSorted((a, b) => a - b);
  return Object.defineProperty(account, "payments", { get: amounts }) as StripeAccount;
}
