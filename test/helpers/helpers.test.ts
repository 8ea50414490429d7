import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { describe, expect, test } from "vitest";
import { startChild } from "./child.js";
import { blockEventLoop, burn } from "./load.js";
import { cleanup, hasNativeRedis, nativeRedis, redisUrl, startCluster, uniquePrefix } from "./redis.js";
import { Recording, startUpstream, startUpstreamThread } from "./upstream.js";
import { until } from "./wait.js";

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

// The other tests believe what these helpers say.
describe("upstream", () => {
  test("counts the most arrivals in any half-open window", () => {
    const at = (...times: number[]) =>
      new Recording(times.map((time) => ({ at: time, method: "GET", url: "/", headers: {}, refused: false })));
    expect(at().maxInWindow(1_000)).toBe(0);
    expect(at(0, 1_000).maxInWindow(1_000)).toBe(1);
    expect(at(0, 999.999).maxInWindow(1_000)).toBe(2);
    expect(at(0, 500, 900, 1_400, 1_450, 3_000).maxInWindow(1_000)).toBe(4);
    expect(at(0, 500, 900).gaps()).toEqual([500, 400]);
  });

  test("records what arrives and refuses what exceeds its limit", async () => {
    await using upstream = await startUpstream({ limit: { max: 2, perMs: 60_000 }, bodies: true });
    const answers: [number, string | null][] = [];
    for (const body of ["a", "b", "c"]) {
      const response = await fetch(`${upstream.url}/x?y=1`, { method: "POST", body });
      await response.text();
      answers.push([response.status, response.headers.get("retry-after")]);
    }
    expect(answers).toEqual([
      [200, null],
      [200, null],
      [429, "60"],
    ]);
    expect(upstream.refused).toBe(1);
    expect(upstream.arrivals[1]).toMatchObject({ method: "POST", url: "/x?y=1", body: "b", refused: false });
  });

  test("hands over to a handler and answers 500 when it throws", async () => {
    await using upstream = await startUpstream({
      handler(request, response) {
        if (request.url === "/bad") throw new Error("no");
        response.writeHead(201).end();
      },
    });
    expect((await fetch(upstream.url)).status).toBe(201);
    expect((await fetch(`${upstream.url}/bad`)).status).toBe(500);
  });

  test("in a thread keeps its times while the test is busy, on the same clock", async () => {
    await using upstream = await startUpstreamThread({ latencyMs: 1 });
    const before = performance.now();
    await (await fetch(upstream.url)).text();
    const after = performance.now();
    const pending = fetch(upstream.url);
    await sleep(50);
    blockEventLoop(300);
    const { arrivals } = await upstream.read();
    await (await pending).text();
    expect(arrivals[0]?.at).toBeGreaterThan(before);
    expect(arrivals[0]?.at).toBeLessThan(after);
    expect(arrivals[1]?.at).toBeLessThan(after + 250);
  });
});

describe("processes", () => {
  test("a child answers, reports its end, and is killed with SIGKILL", async () => {
    await using child = startChild("echo.mjs");
    await child.next("ready");
    child.send({ type: "hello" });
    expect(await child.next<{ pid: number }>("echo")).toMatchObject({ pid: child.pid });
    child.send({ type: "end" });
    expect(await child.exited).toEqual({ code: 3, signal: null });
    await expect(child.next("echo")).rejects.toThrow("ended without");

    const other = startChild("echo.mjs");
    await other.kill();
    expect(await other.exited).toEqual({ code: null, signal: "SIGKILL" });
  });

  test("nothing that was started outlives the process that started it, even after SIGKILL", async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      socket.on("error", () => {}).on("close", () => connections--);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    await using parent = startChild("orphans.mjs", { args: [`${(server.address() as AddressInfo).port}`] });
    await until(() => connections === 1, { what: "the orphan's connection" });
    await parent.kill("SIGKILL");
    // Its connection, not its pid: a dead process keeps that until somebody waits for it.
    await until(() => connections === 0, { what: "the orphan's end" });
    server.close();
  });

  test("burn keeps a core busy until it is stopped", async () => {
    const load = burn(1, 10_000);
    const [pid = 0] = load.pids;
    expect(alive(pid)).toBe(true);
    await load.stop();
    expect(alive(pid)).toBe(false);
  });
});

test("cleanup deletes the keys of its prefix and no others", async () => {
  const redis = new Redis(redisUrl());
  const [mine, other] = [uniquePrefix(), uniquePrefix()];
  await redis.mset(`${mine}:{a}:x`, 1, `${mine}:{b}:y`, 1, `${other}:x`, 1);
  await cleanup(mine);
  expect(await redis.exists(`${mine}:{a}:x`, `${mine}:{b}:y`)).toBe(0);
  expect(await redis.exists(`${other}:x`)).toBe(1);
  redis.disconnect();
});

describe.skipIf(!hasNativeRedis)("native Redis", () => {
  test("restarts empty on the same port after being killed", async () => {
    await using server = await nativeRedis(["--maxmemory", "64mb"]);
    const { url, pid } = server;
    const redis = new Redis(url);
    redis.on("error", () => {});
    await redis.set("x", 1);
    await server.kill();
    await server.restart();
    expect(server.pid).not.toBe(pid);
    expect(await redis.get("x")).toBeNull();
    redis.disconnect();
  });

  test("a cluster of three masters takes keys of every slot", async () => {
    await using cluster = await startCluster();
    const redis = new Redis.Cluster([...cluster.startup]);
    const keys = Array.from({ length: 50 }, (_, index) => `key-${index}`);
    await Promise.all(keys.map((key) => redis.set(key, key)));
    expect(await Promise.all(keys.map((key) => redis.get(key)))).toEqual(keys);
    redis.disconnect();
  });
});
