import type { Arrival } from "../../helpers/upstream.js";
import { type Account, openAccount, Window } from "../account.js";

/**
 * Slack's Web API: each method has calls of its own in a minute, here in a second, and a refusal names whole seconds.
 * https://docs.slack.dev/apis/web-api/rate-limits
 *
 * @param perSecond by method.
 */
export function openSlack(perSecond: Readonly<Record<string, number>>): Promise<Account> {
  const windows = new Map(Object.entries(perSecond).map(([method, limit]) => [method, new Window(limit, 1_000)]));
  const windowOf = ({ url }: Arrival): Window | undefined => windows.get(url.split("/api/")[1] ?? "");
  return openAccount({
    id: ({ url, body = "" }) => `${url}?${body}`,
    accepts(arrival, at) {
      const window = windowOf(arrival);
      if (window?.has(at, 1) !== true) return false;
      window.take(1);
      return true;
    },
    head: () => ({ "content-type": "application/json; charset=utf-8" }),
    refuse(response, arrival, head) {
      const seconds = Math.max(1, Math.ceil(((windowOf(arrival)?.endsAt ?? 0) - Date.now()) / 1_000));
      response
        .writeHead(429, { ...head, "retry-after": `${seconds}` })
        .end(JSON.stringify({ ok: false, error: "ratelimited" }));
      return seconds * 1_000;
    },
    serve: (response, _arrival, head) => response.writeHead(200, head).end(JSON.stringify({ ok: true, ts: "1.0" })),
  });
}
