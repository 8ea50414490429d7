import { InvalidCallError } from "../errors.js";
import type { Limit, LimitRequest } from "./options.js";

/** A request, as the `cost` of its limit sees it. */
export type SeenRequest = LimitRequest & { readonly body: string | undefined };

/**
 * Asks a function of a limit.
 *
 * @throws {InvalidCallError} when it throws: it would do so again.
 */
export function ask<T>(option: string, of: () => T): T {
  try {
    return of();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidCallError(`The \`${option}\` function of the limit failed: ${why}`, { cause });
  }
}

/** What a request weighs, in the words of its limit: not checked. */
export function costOf({ cost = 1 }: Limit, request: SeenRequest): number {
  return typeof cost === "number" ? cost : ask("cost", () => cost(request));
}
