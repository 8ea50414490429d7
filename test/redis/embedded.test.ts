import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { startEmbeddedRedis, type EmbeddedRedis } from "../../dist/redis/embedded.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const root = fileURLToPath(new URL("../..", import.meta.url));
const MB = 1 << 20;

let server: EmbeddedRedis;
let admin: Redis;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  server = await startEmbeddedRedis();
  admin = new Redis(server.url);
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
  const keys = await admin.keys("*");
  if (keys.length > 0) await admin.unlink(...keys);
});
afterAll(async () => {
  admin.disconnect();
  await server.close();
});

/** An ioredis connection that ends with the test. */
function client(): Redis {
  const redis = new Redis(server.url);
  cleanups.push(() => redis.disconnect());
  return redis;
}

/** A socket that may end its side and still read. */
function rawSocket(): Socket {
  const socket = connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true });
  cleanups.push(() => socket.destroy());
  return socket;
}

/** Median of `rounds` measurements, in ms: one slow round on a busy machine does not count. */
async function median(rounds: number, measure: () => Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) times.push(await measure());
  return times.toSorted((a, b) => a - b)[Math.floor(rounds / 2)] ?? Number.NaN;
}

const until = <T>(check: () => T | Promise<T>): Promise<T> => vi.waitFor(check, { timeout: 10_000, interval: 10 });

describe("Valkey", () => {
  test("answers, keeps data in memory only and refuses instead of evicting", async () => {
    const redis = client();
    await redis.set("name", "välue");
    expect(await redis.get("name")).toBe("välue");
    expect(await redis.hset("hash", { a: 1, b: 2 })).toBe(2);
    expect(await redis.multi().incr("n").incr("n").exec()).toEqual([
      [null, 1],
      [null, 2],
    ]);
    expect(await redis.info("server")).toContain("valkey_version:9.");
    for (const [name, value] of [
      ["maxmemory-policy", "noeviction"],
      ["save", ""],
      ["port", String(server.port)],
    ]) {
      expect(await redis.config("GET", name as string)).toEqual([name, value]);
    }
  });

  test.each(["blpop", "blmpop", "bzpopmin", "xread"] as const)("%s wakes before any timer", async (command) => {
    const [waiting, pushing] = [client(), client()];
    const wait = {
      blpop: () => waiting.blpop("key", 10),
      blmpop: () => waiting.blmpop(10, 1, "key", "LEFT"),
      bzpopmin: () => waiting.bzpopmin("key", 10),
      xread: () => waiting.xread("BLOCK", 10_000, "STREAMS", "key", "$"),
    };
    const push = {
      blpop: () => pushing.rpush("key", "value"),
      blmpop: () => pushing.rpush("key", "value"),
      bzpopmin: () => pushing.zadd("key", 1, "value"),
      xread: () => pushing.xadd("key", "*", "value", "1"),
    };
    const latency = await median(15, async () => {
      const woken = wait[command]();
      await until(async () => expect(await pushing.info("clients")).toContain("blocked_clients:1"));
      const start = performance.now();
      await push[command]();
      expect(JSON.stringify(await woken)).toContain("value");
      return performance.now() - start;
    });
    expect(latency).toBeLessThan(20); // 44 ms with Nagle's algorithm, 50 ms on a 100 ms timer, 0.2 ms as it should be
  });

  test("blocking commands time out on time, also when nothing else happens", async () => {
    const redis = client();
    const lateness = await median(5, async () => {
      const start = performance.now();
      expect(await redis.blpop("nothing", 0.3)).toBeNull();
      return performance.now() - start - 300;
    });
    expect(lateness).toBeGreaterThan(-5);
    expect(lateness).toBeLessThan(30);
  });

  test("keys expire, and it says so without being asked", async () => {
    const [redis, listener] = [client(), client()];
    await redis.config("SET", "notify-keyspace-events", "Ex");
    await listener.subscribe("__keyevent@0__:expired");
    const expired = once(listener, "message", { signal: AbortSignal.timeout(10_000) });
    await redis.set("brief", "1", "PX", 30);
    expect(await expired).toEqual(["__keyevent@0__:expired", "brief"]);
    expect(await redis.get("brief")).toBeNull();
  });

  test("publishes to subscribers, also from Lua, and counts them", async () => {
    const [redis, listener] = [client(), client()];
    await listener.subscribe("news");
    const messages: string[] = [];
    listener.on("message", (_channel, message: string) => messages.push(message));
    expect(await redis.publish("news", "plain")).toBe(1);
    const script = "return {redis.call('PUBLISH', 'news', 'lua'), redis.call('PUBSUB', 'NUMSUB', 'news')}";
    expect(await redis.eval(script, 0)).toEqual([1, ["news", 1]]);
    await until(() => expect(messages).toEqual(["plain", "lua"]));
  });

  test("runs Lua with cjson, cmsgpack, TIME and errors", async () => {
    const redis = client();
    const sha = (await redis.script("LOAD", "return cjson.encode(cmsgpack.unpack(ARGV[1]))")) as string;
    expect(await redis.evalsha(sha, 0, Buffer.from([0x93, 1, 2, 3]))).toBe("[1,2,3]");
    const [seconds, micros] = (await redis.eval("return redis.call('TIME')", 0)) as [string, string];
    expect(Math.abs(Number(seconds) * 1000 + Number(micros) / 1000 - Date.now())).toBeLessThan(2000);
    expect(await redis.eval("local ok = pcall(redis.call, 'NONSENSE') return tostring(ok)", 0)).toBe("false");
    await expect(redis.eval("error('oops')", 0)).rejects.toThrow("oops");
  });

  test("keeps 64 MB values intact", async () => {
    const value = Buffer.alloc(64 * MB);
    for (let at = 0; at < value.length; at += 4) value.writeUInt32LE(at, at);
    const redis = client();
    await redis.set("large", value);
    expect((await redis.getBuffer("large"))?.equals(value)).toBe(true);
  });
});

describe("sockets", () => {
  test("a slow reader gets 32 MB intact while Valkey, not Node, holds them", async () => {
    const value = Buffer.alloc(32 * MB, "0123456789abcdefghijklmnopqrstuv");
    await admin.set("large", value);
    const slow = rawSocket();
    slow.write("CLIENT SETNAME slow\r\nGET large\r\nQUIT\r\n"); // the end of the stream is the end of the replies
    slow.pause();
    const held = async (): Promise<number> => {
      const line = String(await admin.client("LIST"))
        .split("\n")
        .find((entry) => entry.includes("name=slow"));
      return Number(/ tot-mem=(\d+)/.exec(line ?? "")?.[1]);
    };
    await until(async () => expect(await held()).toBeGreaterThan(20 * MB));

    const reply = await buffer(slow);
    const expected = [Buffer.from(`+OK\r\n$${value.length}\r\n`), value, Buffer.from("\r\n+OK\r\n")];
    expect(reply.equals(Buffer.concat(expected))).toBe(true);
  });

  test("a reply that is still on its way when Valkey closes the connection arrives whole", async () => {
    await admin.set("large", Buffer.alloc(10 * MB, "x"));
    // One of these sizes fills the kernel's buffers, but not ours: Valkey is done, and the client has not begun.
    for (let size = MB; size <= 10 * MB; size += MB / 2) {
      const socket = rawSocket();
      socket.pause().write(`GETRANGE large 0 ${size - 1}\r\nQUIT\r\n`);
      await setTimeout(30);
      expect((await buffer(socket)).length).toBe(`$${size}\r\n`.length + size + "\r\n+OK\r\n".length);
    }
  });

  test("a client that ends its side first still gets its replies, then the end", async () => {
    // 64 kB is what Node reads at a time, so that the end arrives together with the last commands.
    const commands = "PING  \r\n".repeat((64 * 1024) / 8);
    expect(await text(rawSocket().end(commands))).toBe("+PONG\r\n".repeat((64 * 1024) / 8));
  });

  test("a killed client loses its subscription at once", async () => {
    const source = `
      import { Redis } from "ioredis";
      await new Redis(${JSON.stringify(server.url)}).subscribe("alive");`;
    const subscriber = spawn("node", ["--input-type=module", "-e", source], { cwd: root });
    cleanups.push(() => subscriber.kill("SIGKILL"));
    await until(async () => expect(await admin.pubsub("NUMSUB", "alive")).toEqual(["alive", 1]));
    subscriber.kill("SIGKILL");
    await until(async () => expect(await admin.pubsub("NUMSUB", "alive")).toEqual(["alive", 0]));
  });

  test("a client that sends much at once does not make the others wait", async () => {
    const [busy, other] = [client(), client()];
    await Promise.all([busy.ping(), other.ping()]);
    // Four of these to what Valkey reads from a client at a time.
    const padding = "x".repeat(4096);
    const work = "local n = 0 for i = 1, 10000 do n = n + i % 7 end return n";
    let done = false;
    const all = Promise.all(Array.from({ length: 1500 }, () => busy.eval(work, 0, padding))).then(() => (done = true));
    let answers = 0;
    while (!done) {
      await other.ping();
      answers++;
    }
    await all;
    expect(answers).toBeGreaterThan(10);
  });

  test("serves more connections in its life than Valkey has descriptors", async () => {
    for (let batch = 0; batch < 35; batch++) {
      const batchOf = Array.from({ length: 200 }, () => text(connect(server.port, "127.0.0.1").end("PING\r\n")));
      expect(new Set(await Promise.all(batchOf))).toEqual(new Set(["+PONG\r\n"]));
    }
    await until(async () => expect(await admin.info("clients")).toContain("connected_clients:1\r\n"));
  });
});
