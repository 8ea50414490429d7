import { describe, expect, test } from "vitest";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { openDesk } from "./desk.js";

const LIMIT = { "127.0.0.1": { rate: "1000/s", lateness: 0 } } as const;

describe("an id of the caller's own", () => {
  test("is accepted once while its call waits, runs, and has a result", async () => {
    let answer: (() => void) | undefined;
    await using upstream = await startUpstream({
      handler: (_, response) => void (answer = () => response.end("once")),
    });
    await using desk = openDesk(LIMIT);
    const { client } = desk;
    const limit = client.limit("127.0.0.1");
    const enqueue = (from = client) => from.enqueue(upstream.url, { method: "POST", id: "order-17" });

    await limit.pause("1m");
    const first = await enqueue();
    const second = await enqueue(desk.open());
    expect(second.id).toBe(first.id);
    expect(first.expectedAt).toBeInstanceOf(Date);
    expect(second.expectedAt).toBeUndefined();
    expect((await limit.stats()).depth).toBe(1);

    await limit.resume();
    await until(() => upstream.arrivals.length === 1);
    expect((await enqueue()).id).toBe(first.id);
    const results = [first.result(), (await enqueue(desk.open())).result()];
    answer?.();
    expect((await Promise.all(results)).map((result) => result.text())).toEqual(["once", "once"]);

    const late = await (await enqueue()).result();
    expect(late.text()).toBe("once");
    expect(upstream.arrivals).toHaveLength(1);
  });

  test("is what the `headers` of the limit get", async () => {
    await using upstream = await startUpstream();
    await using desk = openDesk({ "127.0.0.1": { rate: "1000/s", headers: ({ id }) => ({ "x-call": id }) } });
    const own = await desk.client.enqueue(upstream.url, { id: "order-17" });
    await own.result();
    const made = await desk.client.enqueue(upstream.url);
    await made.result();
    const calls = upstream.arrivals.map(({ headers }) => headers["x-call"]);
    expect(calls).toEqual(["order-17", made.id.split("~")[1]]);
  });

  test("names another call in another bucket", async () => {
    await using upstream = await startUpstream();
    await using desk = openDesk({ "127.0.0.1/a": { rate: "1000/s" }, "127.0.0.1/b": { rate: "1000/s" } });
    const paths = ["/a", "/b", "/a"];
    for (const path of paths) await (await desk.client.enqueue(upstream.url + path, { id: "x" })).result();
    expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/a", "/b"]);
  });

  test("is free again when the result is no longer kept, whether the call was answered or failed", async () => {
    let status = 500;
    await using upstream = await startUpstream({
      handler: (_, response) => void response.writeHead(status).end(),
    });
    await using desk = openDesk({ "127.0.0.1": { ...LIMIT["127.0.0.1"], retry: false, keepResults: "300ms" } });
    const { client } = desk;
    const enqueue = () => client.enqueue(upstream.url, { id: "x" });
    for (const [i, next] of [200, 200].entries()) {
      const ticket = await enqueue();
      await ticket.result().catch(() => {});
      // A call that failed stays listed, without its result.
      await until(() =>
        ticket.result().then(
          () => false,
          (error: { code?: string }) => error.code === "ERR_UNKNOWN_CALL",
        ),
      );
      expect(upstream.arrivals).toHaveLength(i + 1);
      expect(await client.limit("127.0.0.1").failed()).toHaveLength(i === 0 ? 1 : 0);
      status = next;
    }
    expect(await (await enqueue()).result()).toMatchObject({ status: 200 });
    expect(upstream.arrivals).toHaveLength(3);
    expect(await client.limit("127.0.0.1").failed()).toEqual([]);
  });

  test("takes no room for a call that is known", async () => {
    await using upstream = await startUpstream();
    await using desk = openDesk({ "127.0.0.1": { rate: "1000/s", capacity: 3 } });
    const { client } = desk;
    const limit = client.limit("127.0.0.1");
    await limit.pause("1m");
    const call = (id: string) => ({ url: `${upstream.url}/${id}`, id });
    const ids = ["a", "b", "a", "c"];
    const { tickets, refused } = await client.enqueueMany([...ids, "d", "b"].map(call), { mode: "fit" });
    const names = tickets.map(({ id }) => id.split("~=").at(-1));
    expect(names).toEqual(ids);
    expect(refused.map(({ id }) => id)).toEqual(["d", "b"]);
    expect(tickets.map(({ expectedAt }) => expectedAt !== undefined)).toEqual([true, true, false, true]);
    expect((await limit.stats()).depth).toBe(3);

    // A full bucket, or one that is blocked, still knows its calls.
    expect((await client.enqueueMany(["c", "a"].map(call))).tickets).toHaveLength(2);
    await expect(client.enqueueMany(["c", "d"].map(call))).rejects.toThrow(
      expect.objectContaining({ code: "ERR_QUEUE_FULL", depth: 3 }),
    );
    await limit.block("1m");
    expect(await client.enqueue(upstream.url, { id: "a" })).toMatchObject({ id: tickets[0]?.id });
    await expect(client.enqueue(upstream.url, { id: "d" })).rejects.toMatchObject({ code: "ERR_BLOCKED" });
    expect((await limit.stats()).depth).toBe(3);
    expect(await limit.clear()).toBe(3);
  });

  test.each(["", "a b", "a:b", "{a}", "a~b", "x".repeat(201), 5])("%j is refused", async (id) => {
    await using desk = openDesk(LIMIT, { worker: false });
    const call = desk.client.enqueue("http://127.0.0.1/", { id: id as string });
    await expect(call).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  });

  test("cannot touch what is not a call", async () => {
    await using upstream = await startUpstream();
    await using desk = openDesk(LIMIT);
    const ids = ["gate", "wait", "active", "meta", "id", "..", "@=+-._A9"];
    const { tickets } = await desk.client.enqueueMany(ids.map((id) => ({ url: upstream.url, id })));
    expect(await Promise.all(tickets.map(async (ticket) => (await ticket.result()).status))).toEqual(
      ids.map(() => 200),
    );
  });
});
