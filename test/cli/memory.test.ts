import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { temporaryFolder } from "../helpers/processes.js";
import { hasNativeRedis, nativeRedis, redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { parseResults, spillway, start } from "./command.js";

const folder = temporaryFolder();
afterAll(() => folder.remove());

async function writeLines(name: string, count: number, line: (i: number) => string): Promise<string> {
  const file = join(folder.path, name);
  const stream = createWriteStream(file);
  for (let i = 0; i < count; i++) if (!stream.write(`${line(i)}\n`)) await once(stream, "drain");
  stream.end();
  await once(stream, "finish");
  return file;
}

// V8 ends the process when its heap needs more.
const heap = (megabytes: number) => [`--max-old-space-size=${megabytes}`];

test("holds a window of the input only: 100 MB of it pass the check, and wait, in a heap of 64 MB", async () => {
  await using upstream = await startUpstream();
  const padding = "x".repeat(950);
  const file = await writeLines(
    "large.jsonl",
    100_000,
    (i) => `{"url":"${upstream.url}/${i}","body":"${padding}","id":"${i}"}`,
  );
  await using command = start(["run", file, "-r", "50/s", "--redis", redisUrl(), "--prefix", uniquePrefix()], {
    execArgv: heap(48),
  });
  await until(() => upstream.arrivals.length >= 50, { timeout: 30_000 });
  command.kill("SIGINT");
  expect(await command.ended).toMatchObject({ code: 130 });
}, 45_000);

test.skipIf(!hasNativeRedis)(
  "sends 10,000 lines in a small heap, and writes each once",
  async () => {
    await using redis = await nativeRedis();
    await using upstream = await startUpstreamThread();
    const lines = 10_000;
    const file = await writeLines("many.txt", lines, (i) => `${upstream.url}/${i}`);
    const output = join(folder.path, "many.jsonl");
    // Without `lateness`, so that a busy machine does not give up slots.
    const config = join(folder.path, "limits.json");
    writeFileSync(config, JSON.stringify({ "127.0.0.1": { rate: "3000/s", lateness: 0 } }));
    const args = ["run", file, "-c", config, "-o", output, "--redis", redis.url, "-q"];
    expect(await spillway(args, { execArgv: heap(48), timeout: 110_000 })).toMatchObject({ code: 0 });
    expect(parseResults(readFileSync(output, "utf8")).map(({ line }) => line)).toEqual(
      Array.from({ length: lines }, (_, i) => i + 1),
    );
    expect((await upstream.read()).arrivals).toHaveLength(lines);
  },
  120_000,
);
