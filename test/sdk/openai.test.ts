import OpenAI from "openai";
import type { Client } from "spillway";
import { expect, test, vi } from "vitest";
import { until } from "../helpers/wait.js";
import { type Account, all, expectOneRefusalAtMost, expectOneRefusalEach, somebodyElse, throttled } from "./account.js";
import { openOpenAI } from "./servers/openai.js";

vi.setConfig({ testTimeout: 40_000 });

const COUNT = 45;
const limit = { rate: "40/2s", concurrency: 20 } as const;
const ANSWER = "It waits its turn.";

const connect = ({ url }: Account, { fetch }: Client): OpenAI =>
  new OpenAI({ apiKey: "sk-test", baseURL: `${url}/v1`, fetch });

const question: OpenAI.ChatCompletionCreateParamsNonStreaming = {
  model: "gpt-4o",
  messages: [{ role: "user", content: "Why?" }],
  max_completion_tokens: 9,
};

const askAll = (openais: readonly OpenAI[]): Promise<(string | null | undefined)[]> =>
  all(COUNT, openais, async (openai, i) => {
    const completion = await openai.chat.completions.create(question, { headers: { "x-call": `${i}` } });
    return completion.choices[0]?.message.content;
  });

/** @param onWord is told of each part of an answer when it arrives. */
const streamAll = (openais: readonly OpenAI[], onWord: (call: string) => void): Promise<string[]> =>
  all(COUNT, openais, async (openai, i) => {
    const options = { headers: { "x-call": `${i}` } };
    const stream = await openai.chat.completions.create({ ...question, stream: true }, options);
    let text = "";
    for await (const { choices } of stream) {
      text += choices[0]?.delta.content ?? "";
      onWord(`${i}`);
    }
    return text;
  });

test("OpenAI within the limits is never refused, and its streams arrive as streams", async () => {
  const begun = new Set<string>();
  const halfway = (call: string): Promise<unknown> =>
    until(() => begun.has(call), { what: `the first word of ${call}` });
  await using account = await openOpenAI({ requests: 40, tokens: 500, halfway });
  await using pair = throttled({ [account.host]: limit });
  const openais = pair.clients.map((client) => connect(account, client));
  expect(await streamAll(openais, (call) => begun.add(call))).toEqual(Array(COUNT).fill(ANSWER));
  expect(account.refused).toEqual([]);
  expect(account.arrivals.length).toBe(COUNT);
});

test.each([
  { name: "the requests", quota: { requests: 40, tokens: 4_000 }, count: 40, tokens: 10 },
  { name: "the tokens", quota: { requests: 100, tokens: 500 }, count: 5, tokens: 90 },
])("OpenAI is refused once a call at most when somebody else has used up $name", async (row) => {
  await using account = await openOpenAI(row.quota);
  await using pair = throttled({ [account.host]: limit });
  const openais = pair.clients.map((client) => connect(account, client));
  const answers = askAll(openais);
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  const body = JSON.stringify({ ...question, max_completion_tokens: row.tokens });
  await somebodyElse(account, "/v1/chat/completions", row.count, { method: "POST", body });
  expect(await answers).toEqual(Array(COUNT).fill(ANSWER));
  expectOneRefusalEach(account);
});

test("OpenAI's streams wait and are refused as other calls are", async () => {
  await using account = await openOpenAI({ requests: 40, tokens: 4_000 });
  await using pair = throttled({ [account.host]: limit });
  const openais = pair.clients.map((client) => connect(account, client));
  const answers = streamAll(openais, () => {});
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  const body = JSON.stringify(question);
  await somebodyElse(account, "/v1/chat/completions", 40, { method: "POST", body });
  expect(await answers).toEqual(Array(COUNT).fill(ANSWER));
  expectOneRefusalEach(account);
});

test("OpenAI is refused once a call at most when its limit is half of what was declared, with adaptive", async () => {
  await using account = await openOpenAI({ requests: 24, tokens: 4_000 });
  await using pair = throttled({ [account.host]: { ...limit, adaptive: true } });
  expect(await askAll(pair.clients.map((client) => connect(account, client)))).toEqual(Array(COUNT).fill(ANSWER));
  // Where the last call that had room was answered before the next one started, there is none.
  expectOneRefusalAtMost(account);
});
