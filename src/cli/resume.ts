import { createReadStream, rmSync } from "node:fs";
import { appendFile, type FileHandle, open, readFile, writeFile } from "node:fs/promises";
import { UsageError } from "./arguments.js";
import { Fingerprints } from "./fingerprints.js";
import { readLines } from "./lines.js";

/** What the output file of a named run tells about earlier runs. */
export interface Earlier {
  readonly done: number;
  readonly failed: number;
  /** Has this call a result? `url` is what the line gives now, "" when it is no call. @throws {UsageError} if it is another call. */
  has(id: string | number, url: string): boolean;
}

export const NOTHING_EARLIER: Earlier = { done: 0, failed: 0, has: () => false };

/**
 * Reads the results of earlier runs. A last line that a crash has cut off is removed: its call is not done, and the
 * result of a call that was answered is still kept in Redis.
 *
 * @throws {UsageError} when the file holds anything else.
 */
export async function readEarlier(file: string): Promise<Earlier> {
  const handle = await open(file, "a+");
  const { size } = await handle.stat();
  const end = await endOfLastLine(handle, size);
  const tail = await readTail(handle, end, size);
  await handle.close();
  const seen = new Fingerprints();
  let done = 0;
  let failed = 0;
  const note = (text: string): boolean => {
    const result = parseResult(text);
    if (result === undefined) return false;
    if (seen.add(keyOf(result.id))) done++;
    seen.add(`${keyOf(result.id)} ${result.url}`);
    if (result.failed) failed++;
    return true;
  };
  const whole = end === 0 ? [] : readLines(createReadStream(file, { end: end - 1 }));
  for await (const { number, text } of whole) {
    if (text !== undefined && text !== "" && !note(text)) throw notOurs(file, number);
  }
  if (tail !== "") await repair(file, end, tail, note);
  const has = (id: string | number, url: string): boolean => {
    if (!seen.has(keyOf(id))) return false;
    // The number of a line is no name: it must still be the same call.
    if (typeof id === "number" && !seen.has(`${keyOf(id)} ${url}`)) throw new UsageError(changed(id, file));
    return true;
  };
  return { done, failed, has };
}

const keyOf = (id: string | number): string => (typeof id === "number" ? `#${id}` : `=${id}`);

const notOurs = (file: string, line: number): UsageError =>
  new UsageError(`${file}, line ${line}, is no result of an earlier run: give -o another FILE`);

const changed = (line: number, file: string): string =>
  `line ${line} is not what it was when ${file} was written: ` +
  "the lines of a named run may not be changed or moved (restore them, give them ids, or begin a run of another name)";

const CHUNK = 65_536;
const NEWLINE = 10;

/** The offset behind the last newline. */
async function endOfLastLine(handle: FileHandle, size: number): Promise<number> {
  const chunk = Buffer.alloc(CHUNK);
  for (let end = size; end > 0; end -= CHUNK) {
    const start = Math.max(0, end - CHUNK);
    const { bytesRead } = await handle.read(chunk, 0, end - start, start);
    const at = chunk.subarray(0, bytesRead).lastIndexOf(NEWLINE);
    if (at !== -1) return start + at + 1;
  }
  return 0;
}

async function readTail(handle: FileHandle, from: number, size: number): Promise<string> {
  const buffer = Buffer.alloc(size - from);
  const { bytesRead } = await handle.read(buffer, 0, buffer.length, from);
  return buffer.toString("utf8", 0, bytesRead);
}

async function repair(file: string, end: number, tail: string, note: (text: string) => boolean): Promise<void> {
  if (note(tail)) {
    await appendFile(file, "\n");
    return;
  }
  const beginning = '{"id":';
  if (!tail.startsWith(beginning) && !beginning.startsWith(tail)) throw notOurs(file, 1);
  const handle = await open(file, "r+");
  await handle.truncate(end);
  await handle.close();
}

function parseResult(text: string): { id: string | number; url: string; failed: boolean } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || !("id" in value)) return undefined;
  const { id } = value;
  if (typeof id !== "string" && typeof id !== "number") return undefined;
  const url = "url" in value && typeof value.url === "string" ? value.url : "";
  return { id, url, failed: "error" in value || ("status" in value && Number(value.status) >= 400) };
}

/** Keeps two runs from writing to one file; what a killed run has left is taken over. @throws {UsageError} */
export async function lock(output: string): Promise<() => void> {
  const file = `${output}.lock`;
  try {
    await writeFile(file, `${process.pid}\n`, { flag: "wx" });
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    const pid = Number(await readFile(file, "utf8"));
    if (pid !== process.pid && isAlive(pid)) {
      throw new UsageError(`Process ${pid} writes to ${output} already (if that is not so, remove ${file})`);
    }
    await writeFile(file, `${process.pid}\n`);
  }
  // Synchronous, so that it can be done when the process ends in a hurry.
  return () => rmSync(file, { force: true });
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid < 1) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
