// @ts-check
// A Redis for the bench alone: native where it is installed, else the embedded Valkey.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { Redis } from "ioredis";
import { startEmbeddedRedis } from "spillway/embedded";

/** @typedef {{ scripts: number, commands: number, cpuMs: number }} Usage */

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** @returns {Promise<{ url: string, close: () => Promise<void> } | undefined>} undefined where it is not installed */
async function startNative() {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "spillway-bench-"));
  const options = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"];
  const child = spawn("redis-server", options, { stdio: ["ignore", "pipe", "ignore"] });
  const end = () => void child.kill("SIGKILL");
  process.on("exit", end);
  const exited = new Promise((resolve) => child.once("exit", resolve).once("error", resolve));
  const close = async () => {
    end();
    await exited;
    process.off("exit", end);
    rmSync(folder, { recursive: true, force: true });
  };
  let log = "";
  const started = new Promise((/** @type {(yes: boolean) => void} */ resolve) => {
    child.stdout.on("data", (chunk) => {
      log += chunk;
      if (log.includes("Ready to accept connections")) resolve(true);
    });
    void exited.then(() => resolve(false));
  });
  if (await started) return { url: `redis://127.0.0.1:${port}`, close };
  await close();
  return undefined;
}

export async function startRedis() {
  const found = await startNative();
  const server = found ?? (await startEmbeddedRedis());
  const client = new Redis(server.url);
  const kind = found === undefined ? "embedded Valkey (no redis-server is installed)" : "native";
  const version = field(await client.info("server"), "redis_version");
  return {
    url: server.url,
    client,
    description: `${kind}, ${version}`,
    native: found !== undefined,
    /** Everything since the last `clear`: scripts called, other commands (those inside scripts too), processor time. */
    usage: () => usage(client),
    async clear() {
      await client.flushall();
      await client.config("RESETSTAT");
    },
    /** Bytes that the data takes. */
    memory: async () => Number(field(await client.info("memory"), "used_memory")),
    async close() {
      client.disconnect();
      await server.close();
    },
  };
}

/** @typedef {Awaited<ReturnType<typeof startRedis>>} BenchRedis */

const field = (/** @type {string} */ info, /** @type {string} */ name) =>
  new RegExp(`^${name}:(.*?)\\r?$`, "m").exec(info)?.[1] ?? "";

const SCRIPTS = new Set(["eval", "evalsha", "fcall"]);
const OURS = new Set(["info", "config|resetstat"]);

/** @param {Redis} client @returns {Promise<Usage>} */
async function usage(client) {
  const info = `${await client.info("commandstats")}\n${await client.info("cpu")}`;
  let scripts = 0;
  let commands = 0;
  for (const [, name = "", calls] of info.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)) {
    if (SCRIPTS.has(name)) scripts += Number(calls);
    else if (!OURS.has(name)) commands += Number(calls);
  }
  const cpuMs = 1000 * (Number(field(info, "used_cpu_sys")) + Number(field(info, "used_cpu_user")));
  return { scripts, commands, cpuMs };
}
