import { InvalidCallError } from "../errors.js";
import type { Limit, LimitRequest } from "../limits/options.js";
import { readTerms, type Terms, type Wished } from "../queue/terms.js";

/** A request, as functions of its limit see it. */
type SeenRequest = LimitRequest & { readonly body: string | undefined };

/**
 * How a request waits: what its call says, and what its limit makes of it.
 *
 * @throws {InvalidCallError} when something cannot be meant, or a function of the limit failed.
 */
export function termsOf(limit: Limit, request: SeenRequest, wished: Wished): Terms {
  const { cost = 1, admit } = limit;
  const usual = (): number => (typeof cost === "number" ? cost : ask("cost", () => cost(request)));
  const terms = readTerms(wished, usual);
  if (admit?.key === undefined) return terms;
  const { key } = admit;
  return {
    ...terms,
    producer: checkProducer(
      limit,
      "admit.key",
      ask("admit.key", () => key(request)),
    ),
  };
}

/** The same for `run`, which has no request. */
export function termsOfRun(
  limit: Limit,
  { producer, ...wished }: Wished & { readonly producer?: string | undefined },
): Terms {
  const { cost, admit } = limit;
  const terms = readTerms(wished, () => (typeof cost === "number" ? cost : 1));
  return admit?.key === undefined ? terms : { ...terms, producer: checkProducer(limit, "producer", producer) };
}

function ask<T>(option: string, of: () => T): T {
  try {
    return of();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidCallError(`The \`${option}\` function of the limit failed: ${why}`, { cause });
  }
}

function checkProducer({ name }: Limit, option: string, producer: unknown): string {
  if (typeof producer === "string" && producer !== "" && !/\p{Surrogate}/u.test(producer)) return producer;
  throw new InvalidCallError(
    `Limit "${name}" has a quota for each producer: expected \`${option}\` to be a non-empty string, got ${JSON.stringify(producer)}`,
  );
}
