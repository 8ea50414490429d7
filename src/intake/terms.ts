import { InvalidCallError } from "../errors.js";
import { isName } from "../limits/check.js";
import { ask, costOf, type SeenRequest } from "../limits/ask.js";
import type { Limit } from "../limits/options.js";
import { readTerms, type Terms, type Wished } from "../queue/terms.js";

/**
 * How a request waits: what its call says, and what its limit makes of it.
 *
 * @throws {InvalidCallError} when something cannot be meant, or a function of the limit failed.
 */
export function termsOf(limit: Limit, request: SeenRequest, wished: Wished): Terms {
  const { admit } = limit;
  const terms = readTerms(wished, () => costOf(limit, request));
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

function checkProducer({ name }: Limit, option: string, producer: unknown): string {
  if (isName(producer)) return producer;
  throw new InvalidCallError(
    `Limit "${name}" has a quota for each producer: expected \`${option}\` to be a non-empty string, got ${JSON.stringify(producer)}`,
  );
}
