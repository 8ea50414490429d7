import { InvalidCallError } from "../errors.js";
import type { Limit, LimitRequest } from "../limits/options.js";

/**
 * What a request weighs if its call does not say.
 *
 * @throws {InvalidCallError} when the limit's own function throws.
 */
export function usualCost({ cost = 1 }: Limit, request: LimitRequest & { readonly body: string | undefined }): number {
  if (typeof cost === "number") return cost;
  try {
    return cost(request);
  } catch (cause) {
    throw new InvalidCallError(
      `The \`cost\` function failed: ${cause instanceof Error ? cause.message : String(cause)}`,
      {
        cause,
      },
    );
  }
}
