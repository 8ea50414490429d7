import { LogLevel, WebClient } from "@slack/web-api";
import type { Client } from "spillway";
import { expect, test, vi } from "vitest";
import { until } from "../helpers/wait.js";
import { type Account, all, expectOneRefusalEach, somebodyElse, throttled } from "./account.js";
import { openSlack } from "./servers/slack.js";

vi.setConfig({ testTimeout: 40_000 });

const COUNT = 30;
const POST = "chat.postMessage";
const LIST = "conversations.list";

/** Its own patience is that of its default: a second or two after what Retry-After asks for. */
const connect = ({ url }: Account, { fetch }: Client): WebClient =>
  new WebClient("xoxb-test", { slackApiUrl: `${url}/api/`, fetch, logLevel: LogLevel.ERROR });

const postAll = (slacks: readonly WebClient[]): Promise<boolean[]> =>
  all(COUNT, slacks, async (slack, i) => (await slack.chat.postMessage({ channel: "C1", text: `call ${i}` })).ok);

const fine = Array(COUNT).fill(true);
const byMethod = ({ host }: Account) =>
  ({
    [`${host}/api`]: { rate: "20/s" },
    [`${host}/api/${LIST}`]: { rate: "10/s", concurrency: 5 },
  }) as const;

test("Slack within the limits of its methods is never refused", async () => {
  await using account = await openSlack({ [POST]: 20, [LIST]: 10 });
  await using pair = throttled(byMethod(account));
  const slacks = pair.clients.map((client) => connect(account, client));
  const lists = all(10, slacks, async (slack, i) => (await slack.conversations.list({ cursor: `${i}` })).ok);
  expect(await postAll(slacks)).toEqual(fine);
  expect(await lists).toEqual(Array(10).fill(true));
  expect(account.refused).toEqual([]);
  expect(account.arrivals.length).toBe(COUNT + 10);
});

test("Slack is refused once a call at most when somebody else has used up a method", async () => {
  await using account = await openSlack({ [POST]: 20, [LIST]: 10 });
  await using pair = throttled({ [account.host]: { rate: "20/s", concurrency: 20 } });
  const posts = postAll(pair.clients.map((client) => connect(account, client)));
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  await somebodyElse(account, `/api/${POST}`, 20, { method: "POST" });
  expect(await posts).toEqual(fine);
  expectOneRefusalEach(account);
});

test("Slack is refused once a call at most when its limit is half of what was declared, with adaptive", async () => {
  await using account = await openSlack({ [POST]: 12 });
  await using pair = throttled({ [account.host]: { rate: "20/s", adaptive: true } });
  expect(await postAll(pair.clients.map((client) => connect(account, client)))).toEqual(fine);
  expectOneRefusalEach(account);
});
