import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { createClient, defineLimits, type FeedbackReader } from "spillway";
import { Agent, fetch as undiciFetch } from "undici";
import { throttle } from "spillway/undici";
import { expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";

const usageOf: FeedbackReader = ({ body }) =>
  body === undefined ? undefined : { cost: (JSON.parse(body) as { used: number }).used };

const ENCODINGS = {
  identity: (body: Buffer) => body,
  gzip: gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
} as const;

/** A server that says in its body that a call has cost 7, in two pieces; and a client that takes calls to cost 50. */
async function setUp(encoding: keyof typeof ENCODINGS, feedback: FeedbackReader, body = '{"used":7}') {
  const encoded = ENCODINGS[encoding](Buffer.from(body));
  const upstream = await startUpstream({
    handler: (_request, response) => {
      response.writeHead(200, encoding === "identity" ? {} : { "content-encoding": encoding });
      response.write(encoded.subarray(0, 4));
      response.end(encoded.subarray(4));
    },
  });
  const rules = [{ limit: 100, per: "1h", counts: "cost" }] as const;
  const limits = defineLimits({ [upstream.host]: { rate: "1000/s", rules, cost: 50, feedback } });
  const client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
  const end = async () => {
    await client.close();
    await upstream.close();
  };
  /** Whether one more call could start now. */
  const isOpen = async () => (await client.limit(upstream.host).stats()).waitsFor === undefined;
  return { upstream, client, isOpen, [Symbol.asyncDispose]: end };
}

test.each(["identity", "gzip", "deflate", "br"] as const)(
  "what the body says it cost is what counts: %s",
  async (encoding) => {
    await using here = await setUp(encoding, usageOf);
    const { client, upstream, isOpen } = here;
    for (let i = 0; i < 8; i++) {
      const response = await client.fetch(upstream.url);
      expect(await response.json()).toEqual({ used: 7 });
      // 7 for each that has ended, and 50 for the next.
      await until(isOpen);
    }
    expect(upstream.arrivals.length).toBe(8);
  },
);

test("through the interceptor, too", async () => {
  await using here = await setUp("gzip", usageOf);
  const { client, upstream, isOpen } = here;
  const agent = new Agent();
  const dispatcher = agent.compose(throttle(client));
  for (let i = 0; i < 4; i++) {
    await (await undiciFetch(upstream.url, { dispatcher })).text();
    await until(isOpen);
  }
  await agent.close();
});

test("a body that is not read to its end, or too large, leaves the cost as it was taken to be", async () => {
  const seen: (number | undefined)[] = [];
  const feedback: FeedbackReader = ({ body }) => void seen.push(body?.length);
  await using here = await setUp("identity", feedback, "x".repeat(1_048_577));
  const { client, upstream } = here;
  await (await client.fetch(upstream.url)).text();
  expect(seen).toEqual([undefined]);
  await using other = await setUp("identity", feedback);
  const response = await other.client.fetch(other.upstream.url);
  await response.body?.cancel();
  expect((await other.client.limit(other.upstream.host).stats()).waitsFor).toBe(undefined);
});

test("what a call of run has cost is said by itself", async () => {
  await using here = await setUp("identity", () => undefined);
  const { client, upstream, isOpen } = here;
  for (let i = 0; i < 5; i++) {
    await client.run(upstream.host, ({ settle }) => settle(1), { cost: 90 });
    await until(isOpen);
  }
  await expect(client.run(upstream.host, ({ settle }) => settle(-1))).rejects.toMatchObject({
    code: "ERR_INVALID_CALL",
  });
});

test("a refusal that only the body tells closes the gate, too", async () => {
  const message = '{"message":"You have exceeded a secondary rate limit"}';
  await using upstream = await startUpstream({
    handler: (_request, response) => void response.writeHead(403, { "x-github-request-id": "1" }).end(message),
  });
  const limits = defineLimits({ [upstream.host]: { rate: "1000/s" } });
  await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits });
  const response = await client.fetch(upstream.url);
  expect(await response.text()).toBe(message);
  const bucket = client.limit(upstream.host);
  await until(async () => (await bucket.stats()).paused !== undefined);
  expect((await bucket.usage(60)).throttled).toBe(1);
});
