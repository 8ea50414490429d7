import type { FeedbackResponse } from "./types.js";

/** The headers of `node:http` and of undici's `request`, as `readFeedback` takes them. */
export function headersOf(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): FeedbackResponse["headers"] {
  return {
    get: (name) => {
      const key = name.toLowerCase();
      const value = Object.hasOwn(headers, key) ? headers[key] : undefined;
      return typeof value === "string" ? value : value?.join(", ");
    },
  };
}
