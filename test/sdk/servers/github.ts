import type { Arrival } from "../../helpers/upstream.js";
import { type Account, openAccount, Window } from "../account.js";

/** Points of a secondary limit: 1 for reading, 5 for writing. */
const points = ({ method }: Arrival): number => (method === "GET" ? 1 : 5);

const json = (value: object): string => JSON.stringify(value);

/**
 * GitHub's REST API: so many requests in an hour, here in two seconds, whose end is told as an epoch second; and so many
 * points in a minute, here in two seconds, refused with a Retry-After in whole seconds.
 * https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
 */
export function openGitHub(limits: {
  readonly primary: number;
  readonly points: number;
  /** GitHub refuses with either. */
  readonly status: 403 | 429;
}): Promise<Account> {
  const primary = new Window(limits.primary, 2_000);
  const secondary = new Window(limits.points, 2_000);
  /** Told as an epoch second, when the window has ended. */
  const reset = (): number => Math.ceil(primary.endsAt / 1_000);
  const secondaries = new WeakSet<Arrival>();
  return openAccount({
    id: ({ headers }) => String(headers["x-call"]),
    accepts(arrival, at) {
      const [asked, room] = [points(arrival), primary.has(at, 1)];
      if (!secondary.has(at, asked)) secondaries.add(arrival);
      if (!room || secondaries.has(arrival)) return false;
      primary.take(1);
      secondary.take(asked);
      return true;
    },
    head: () => ({
      "content-type": "application/json; charset=utf-8",
      "x-github-request-id": "0F3A:1",
      "x-ratelimit-limit": `${primary.limit}`,
      "x-ratelimit-remaining": `${primary.remaining}`,
      "x-ratelimit-used": `${primary.limit - primary.remaining}`,
      "x-ratelimit-reset": `${reset()}`,
      "x-ratelimit-resource": "core",
    }),
    refuse(response, arrival, head) {
      const isSecondary = secondaries.has(arrival);
      const wait = Math.ceil((secondary.endsAt - Date.now()) / 1_000);
      const pauseMs = isSecondary ? wait * 1_000 : reset() * 1_000 - Date.now();
      const message = isSecondary
        ? "You have exceeded a secondary rate limit"
        : "API rate limit exceeded for user ID 1";
      response
        .writeHead(limits.status, { ...head, ...(isSecondary && { "retry-after": `${wait}` }) })
        .end(json({ message, documentation_url: "https://docs.github.com/rest" }));
      return pauseMs;
    },
    serve: (response, { url }, head) => response.writeHead(200, head).end(json({ url })),
  });
}
