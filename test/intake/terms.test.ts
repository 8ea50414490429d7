/** What one call may say of itself: priority, maxWait, cost and, of durable calls, dedupe. */
import { Agent } from "undici";
import { type Client, DuplicateError, type FeedbackReader, type ReportedResponse, type RunContext } from "spillway";
import { describe, expect, test, vi } from "vitest";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { ending, name, openDesk } from "./desk.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

const depthOf = async (client: Client, limit: string): Promise<number> => (await client.limit(limit).stats()).depth;

/** An hour's window of so much cost, and nothing else that holds anything up. */
const costs = (limit: number) =>
  ({ rate: "1000/s", rules: [{ limit, per: "1h", counts: "cost" }], lateness: "50ms" }) as const;

describe("priority", () => {
  test("of fetch, run and enqueue in one queue", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    // So far apart that connections that have to be made first change nothing.
    await using desk = openDesk({ [limit]: { rate: "5/s" } });
    const { client } = desk;
    await client.limit(limit).pause("1h");
    const order: string[] = [];
    const ends: Promise<unknown>[] = [];
    let waiting = 0;
    const add = async (promise: Promise<unknown>): Promise<void> => {
      ends.push(promise);
      waiting++;
      await until(async () => (await depthOf(client, limit)) === waiting);
    };
    const run = (label: string, options?: object): Promise<unknown> =>
      client.run(limit, () => order.push(label), options);
    const urlOf = (label: string): string => `${upstream.url}/${label}`;
    await add(client.fetch(urlOf("f-low"), { priority: "low" }));
    await add(client.enqueue(urlOf("e-low"), { priority: "low" }).then((ticket) => ticket.result()));
    await add(client.fetch(urlOf("f-auto"), { priority: "auto" }));
    await add(run("r-normal"));
    await add(client.fetch(urlOf("f-normal")));
    await add(client.enqueue(urlOf("e-normal"), { priority: "normal" }).then((ticket) => ticket.result()));
    await add(client.enqueue(urlOf("e-high"), { priority: "high" }).then((ticket) => ticket.result()));
    await add(client.fetch(urlOf("f-high"), { priority: "high" }));
    await add(run("r-high", { priority: "high" }));
    await client.limit(limit).resume();
    await Promise.all(ends);
    expect(order).toEqual(["r-high", "r-normal"]);
    expect(upstream.arrivals.map(({ url }) => url.slice(1))).toEqual([
      "e-high",
      "f-high",
      "f-auto",
      "f-normal",
      "e-normal",
      "f-low",
      "e-low",
    ]);
  });

  test("fetch's own init and dispatcher go on working", async () => {
    await using upstream = await startUpstream({ bodies: true });
    await using desk = openDesk({ [upstream.host]: { rate: "100/s" } });
    const dispatcher = new Agent();
    const init = {
      method: "POST",
      body: "b",
      headers: { "x-own": "1" },
      priority: "high",
      cost: 3,
      maxWait: "1m",
    } as const;
    const response = await desk.client.fetch(upstream.url, { ...init, dispatcher } as typeof init);
    expect(response.status).toBe(200);
    expect(upstream.arrivals).toMatchObject([{ method: "POST", body: "b", headers: { "x-own": "1" } }]);
    await dispatcher.close();
  });
});

describe("maxWait of one call", () => {
  test("ends its wait, and is told in the error in place of the limit's", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    await using desk = openDesk({ [limit]: { rate: "100/s", maxWait: "1h" } });
    const { client } = desk;
    await client.limit(limit).pause("1h");
    const ends = [
      ending(client.fetch(upstream.url, { maxWait: 150 })),
      ending(client.run(limit, () => {}, { maxWait: "150ms" })),
    ];
    for (const end of ends) {
      expect(await end).toMatchObject({ error: { code: "ERR_WAIT_EXCEEDED", limit, maxWait: 150 } });
    }
    await until(async () => (await depthOf(client, limit)) === 0);
  });

  test("of a durable call ends its wait also behind others, and says so", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    await using desk = openDesk({ [limit]: { rate: "1/h", maxWait: "2h" } }, { worker: false });
    const { client } = desk;
    desk.work();
    const first = await client.enqueue(upstream.url);
    await first.result();
    const waiting = await client.enqueue(upstream.url);
    const ticket = await client.enqueue(upstream.url, { maxWait: "200ms", priority: "low" });
    const error = { code: "ERR_WAIT_EXCEEDED", maxWait: 200, message: expect.stringContaining("200 ms") };
    await expect(ticket.result()).rejects.toMatchObject(error);
    // Also for whoever asks later.
    await expect(client.ticket(ticket.id).result()).rejects.toMatchObject(error);
    expect(await depthOf(client, limit)).toBe(1);
    await waiting.cancel();
  });

  test("longer than the limit's lets a call wait longer", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    await using desk = openDesk({ [limit]: { rate: "100/s", maxWait: "100ms" } });
    const { client } = desk;
    await client.limit(limit).pause("400ms");
    const patient = ending(client.fetch(upstream.url, { maxWait: "1m" }));
    expect(await ending(client.fetch(upstream.url))).toMatchObject({ error: { maxWait: 100 } });
    expect(await patient).toMatchObject({ value: { status: 200 } });
  });
});

describe("cost", () => {
  test("of the call, else of the limit, counts where rules count cost", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    await using desk = openDesk({ [limit]: { ...costs(20), cost: 5 } });
    const { client } = desk;
    await client.fetch(upstream.url);
    await client.run(limit, () => {});
    await client.fetch(upstream.url, { cost: 3 });
    await (await client.enqueue(upstream.url, { cost: 6 })).result();
    expect(await ending(client.fetch(upstream.url, { cost: 2, maxWait: "200ms" }))).toMatchObject({
      error: { code: "ERR_WAIT_EXCEEDED" },
    });
    expect((await client.fetch(upstream.url, { cost: 1 })).status).toBe(200);
  });

  test("as a function sees the request, with a body that is text", async () => {
    await using upstream = await startUpstream();
    const seen: unknown[] = [];
    const cost = ({
      url,
      method,
      headers,
      body,
    }: {
      url: URL;
      method: string;
      headers: Headers;
      body: string | undefined;
    }): number => {
      seen.push([url.pathname, method, headers.get("x-own"), body]);
      return 2;
    };
    await using desk = openDesk({ [upstream.host]: { ...costs(10), cost } });
    const { client } = desk;
    await client.fetch(`${upstream.url}/a`, { method: "post", body: "text", headers: { "x-own": "1" } });
    await client.fetch(new Request(`${upstream.url}/b`, { method: "POST", body: "stream" }));
    const ticket = await client.enqueue(`${upstream.url}/c`, { method: "PUT", body: "durable" });
    const binary = await client.enqueue(`${upstream.url}/d`, { method: "PUT", body: new Uint8Array([255, 0]) });
    await Promise.all([ticket.result(), binary.result()]);
    expect(seen).toEqual([
      ["/a", "POST", "1", "text"],
      ["/b", "POST", null, undefined],
      ["/c", "PUT", null, "durable"],
      ["/d", "PUT", null, undefined],
    ]);
    expect(await ending(client.run(upstream.host, () => {}, { cost: 3, maxWait: "200ms" }))).toHaveProperty("error");
    expect(await ending(client.run(upstream.host, () => {}, { maxWait: "1m" }))).toHaveProperty("value");
  });

  test.each([
    [() => 0, "cost"],
    [() => Number.NaN, "cost"],
    [
      () => {
        throw new Error("no idea");
      },
      "no idea",
    ],
  ])("a function that gives none fails its call, and nothing is stored", async (cost, why) => {
    await using upstream = await startUpstream();
    await using desk = openDesk({ [upstream.host]: { ...costs(10), cost } });
    for (const call of [desk.client.fetch(upstream.url), desk.client.enqueue(upstream.url)]) {
      await expect(call).rejects.toMatchObject({ code: "ERR_INVALID_CALL", message: expect.stringContaining(why) });
    }
    expect(upstream.arrivals).toEqual([]);
  });

  test("what run settles is what it cost; the last word counts", async () => {
    const limit = name();
    await using desk = openDesk({ [limit]: costs(10) });
    const { client } = desk;
    const said = await client.run(
      limit,
      ({ settle }) => {
        settle(9);
        settle(1.5);
        return "said";
      },
      { cost: 10 },
    );
    expect(said).toBe("said");
    // 2, rounded up.
    expect(await ending(client.run(limit, () => {}, { cost: 8, maxWait: "10s" }))).toHaveProperty("value");
    expect(await ending(client.run(limit, () => {}, { maxWait: "200ms" }))).toHaveProperty("error");
  });

  test("a rate that counts cost: what was settled twice moves it once", async () => {
    const limit = name();
    await using desk = openDesk({ [limit]: { rate: { limit: 10, per: "1m", counts: "cost" }, lateness: 0 } });
    const { client } = desk;
    await client.run(limit, ({ settle }) => {
      for (const cost of [5, 6, 7, 8]) settle(cost);
    });
    const { nextSlotAt } = await client.limit(limit).stats();
    // Eight of six seconds each.
    expect(nextSlotAt.getTime() - Date.now()).toBeGreaterThan(40_000);
    expect(nextSlotAt.getTime() - Date.now()).toBeLessThan(49_000);
  });

  test.each([-1, Number.NaN, Infinity, "5", undefined])("run cannot settle %s", async (cost) => {
    const limit = name();
    await using desk = openDesk({ [limit]: costs(10) });
    const settle = ({ settle: tell }: RunContext): void => tell(cost as number);
    await expect(desk.client.run(limit, settle)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  });

  test("what run reports is heard: pauses, and the cost that feedback reads", async () => {
    const limit = name();
    const bodies: unknown[] = [];
    const feedback: FeedbackReader = ({ status, body }) => {
      bodies.push(body);
      return status === 200 ? { cost: 1 } : undefined;
    };
    await using desk = openDesk({ [limit]: { ...costs(10), feedback } });
    const { client } = desk;
    await client.run(limit, ({ report }) => report(new Response("stream")), { cost: 10 });
    expect(await ending(client.run(limit, () => {}, { cost: 8, maxWait: "10s" }))).toHaveProperty("value");
    await client.run(limit, ({ report }) => report({ status: 200, headers: new Headers(), body: "text" }));
    expect(bodies).toEqual([undefined, "text"]);
    const refused = { status: 429, headers: { get: (header: string) => (header === "retry-after" ? "60" : null) } };
    await client.run(limit, ({ report }) => report(refused), { maxWait: "100ms" }).catch(() => {});
    await client.limit(limit).set({ rules: [] });
    await client.run(limit, ({ report }) => report(refused));
    await until(async () => (await client.limit(limit).stats()).paused !== undefined);
  });

  test.each([undefined, null, 5, {}, { status: 200 }, { status: 200, headers: {} }, { headers: new Headers() }])(
    "run cannot report %o",
    async (response) => {
      const limit = name();
      await using desk = openDesk({ [limit]: costs(10) });
      const running = desk.client.run(limit, ({ report }) => report(response as ReportedResponse));
      await expect(running).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
    },
  );

  test("headers that are no text, or cannot be read, cost nobody his result", async () => {
    const limit = name();
    await using desk = openDesk({ [limit]: costs(10) });
    const { client } = desk;
    const warnings: string[] = [];
    client.events.on("warning", ({ message }) => warnings.push(message));
    const odd = { get: (header: string) => (header === "retry-after" ? 5 : null) } as unknown as Headers;
    const broken = {
      get: () => {
        throw new Error("broken headers");
      },
    };
    for (const headers of [odd, broken]) {
      expect(await client.run(limit, ({ report }) => (report({ status: 429, headers }), "done"))).toBe("done");
    }
    await until(() => warnings.length > 0);
    expect(warnings).toEqual(["broken headers"]);
  });

  test("feedback tells what a durable call has cost", async () => {
    await using upstream = await startUpstream({
      handler: (_request, response) => response.end('{"usage":{"total_tokens":3}}'),
    });
    const feedback = ({ body }: { body?: string | undefined }): { cost: number } => ({
      cost: JSON.parse(body ?? "{}").usage.total_tokens,
    });
    await using desk = openDesk({ [upstream.host]: { ...costs(10), feedback } });
    const { client } = desk;
    await (await client.enqueue(upstream.url, { cost: 10 })).result();
    await (await client.enqueue(upstream.url, { cost: 7, maxWait: "30s" })).result();
    const late = await client.enqueue(upstream.url, { cost: 5, maxWait: "10ms" });
    await expect(late.result()).rejects.toMatchObject({ code: "ERR_WAIT_EXCEEDED" });
  });
});

describe("dedupe", () => {
  test("a call joins the one that waits, and gets its ticket", async () => {
    await using upstream = await startUpstream();
    const limit = upstream.host;
    await using desk = openDesk({ [limit]: { rate: "100/s" } });
    const { client } = desk;
    await client.limit(limit).pause("1h");
    const first = await client.enqueue(`${upstream.url}/1`, { dedupe: "k" });
    const second = await client.enqueue(`${upstream.url}/2`, { dedupe: { key: "k" } });
    expect(second.id).toBe(first.id);
    const { tickets } = await client.enqueueMany([
      { url: `${upstream.url}/3`, dedupe: "k" },
      { url: `${upstream.url}/4`, dedupe: "l" },
      { url: `${upstream.url}/5`, dedupe: "l" },
    ]);
    expect(tickets.map(({ id }) => id)).toEqual([first.id, tickets[1]?.id, tickets[1]?.id]);
    const refused = client.enqueue(`${upstream.url}/6`, { dedupe: { key: "k", mode: "refuse" } });
    await expect(refused).rejects.toThrow(DuplicateError);
    await expect(refused).rejects.toMatchObject({ code: "ERR_DUPLICATE", limit, id: first.id });
    await client.limit(limit).resume();
    const results = await Promise.all([first, second, ...tickets].map((ticket) => ticket.result()));
    expect(results.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/1", "/4"]);
    const next = await client.enqueue(`${upstream.url}/7`, { dedupe: { key: "k", mode: "refuse" } });
    expect(await next.result()).toMatchObject({ status: 200 });
  });
});

describe("what cannot be meant", () => {
  test.each([
    [{ priority: "urgent" }, "priority"],
    [{ priority: 1 }, "priority"],
    [{ priority: null }, "priority"],
    [{ priority: "toString" }, "priority"],
    [{ cost: 0 }, "cost"],
    [{ cost: 1.5 }, "cost"],
    [{ cost: 1_000_001 }, "cost"],
    [{ cost: "5" }, "cost"],
    [{ maxWait: "soon" }, "maxWait"],
    [{ maxWait: -1 }, "maxWait"],
    [{ maxWait: 0 }, "maxWait"],
  ])("fails the call with ERR_INVALID_CALL: %j", async (terms, named) => {
    await using upstream = await startUpstream();
    await using desk = openDesk({ [upstream.host]: { rate: "100/s" } });
    const { client } = desk;
    const wrong = terms as object;
    for (const call of [
      client.fetch(upstream.url, wrong),
      client.run(upstream.host, () => {}, wrong),
      client.enqueue(upstream.url, wrong),
    ]) {
      await expect(call).rejects.toMatchObject({ code: "ERR_INVALID_CALL", message: expect.stringContaining(named) });
    }
    expect(upstream.arrivals).toEqual([]);
    expect(await depthOf(client, upstream.host)).toBe(0);
  });

  test("an option that there is not, and what was meant by it", async () => {
    const limit = "stray.example";
    await using desk = openDesk({ [limit]: { rate: "100/s" } }, { worker: false });
    const { client } = desk;
    const url = `http://${limit}/`;
    const run = (options: object) => client.run(limit, () => "ran", options);
    const enqueue = (init: object) => client.enqueue(url, init);
    for (const [call, named] of [
      [
        run({ maxwait: "5s" }),
        "`options.maxwait` to be left out, as there is no such option (did you mean `maxWait`?)",
      ],
      [run({ body: "" }), "the options are priority, cost, maxWait, signal, key, producer"],
      [run([] as object), "an object with the options priority"],
      [enqueue({ metod: "POST" }), "did you mean `method`?"],
      [enqueue({ signal: AbortSignal.abort() }), "`options.signal` to be left out"],
      [client.enqueueMany([{ url }, { url, dedup: "k" } as { url: string }]), "did you mean `dedupe`?"],
      [client.enqueueMany([{ url }], { modus: "fit" } as object), "did you mean `mode`?"],
    ] as const) {
      await expect(call).rejects.toMatchObject({ code: "ERR_INVALID_CALL", message: expect.stringContaining(named) });
    }
    expect(await depthOf(client, limit)).toBe(0);
  });

  test.each(["", 5, null, "x".repeat(1001), "half \ud83c a pair", {}, { key: "" }, { key: "k", mode: "replace" }, []])(
    "a dedupe that is no key: %j",
    async (dedupe) => {
      await using upstream = await startUpstream();
      await using desk = openDesk({ [upstream.host]: { rate: "100/s" } });
      const wrong = { dedupe } as object;
      await expect(desk.client.enqueue(upstream.url, wrong)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
      expect(await depthOf(desk.client, upstream.host)).toBe(0);
    },
  );
});
