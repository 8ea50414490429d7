import { createReadStream } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import type { Readable } from "node:stream";
import { type RunArguments, UsageError } from "./arguments.js";
import { type Call, type InvalidLine, parseLine } from "./call.js";
import { readLines } from "./lines.js";

const MAX_LINE = 32 * 1024 * 1024;

/** Where the calls come from. */
export class Source {
  /** For messages. */
  readonly name: string;
  /** Whether it can be read twice, once to count. */
  readonly countable: boolean;
  readonly #file: string | undefined;
  readonly #headers: RunArguments["headers"];
  #reading: Readable | undefined;

  private constructor(file: string | undefined, countable: boolean, headers: RunArguments["headers"]) {
    this.name = file ?? "stdin";
    this.countable = countable;
    this.#file = file;
    this.#headers = headers;
  }

  /** @throws {UsageError} when it cannot be read, or is the file that results are written to. */
  static async open({ file, output, headers }: RunArguments): Promise<Source> {
    if (file === undefined) {
      if (process.stdin.isTTY)
        throw new UsageError("No FILE was given, and stdin is a terminal: see spillway run --help");
      return new Source(undefined, false, headers);
    }
    const stats = await stat(file).catch((error: Error) => {
      throw new UsageError(`Cannot read ${file}: ${error.message}`);
    });
    if (stats.isDirectory()) throw new UsageError(`Cannot read ${file}: it is a directory`);
    if (output !== undefined && (await isSame(file, output))) {
      throw new UsageError(`-o would overwrite the input, ${file}`);
    }
    return new Source(file, stats.isFile(), headers);
  }

  /** Reads the calls, and the lines that are none, as fast as they are taken. */
  async *calls(): AsyncGenerator<Call | InvalidLine> {
    this.#reading = this.#file === undefined ? process.stdin : createReadStream(this.#file, { highWaterMark: 1 << 18 });
    for await (const line of readLines(this.#reading, MAX_LINE)) {
      const call = parseLine(line, this.#headers);
      if (call !== undefined) yield call;
    }
  }

  /** Ends the reading, also when it waits for a line that may never come. */
  close(): void {
    this.#reading?.destroy();
  }
}

async function isSame(file: string, other: string): Promise<boolean> {
  try {
    return (await realpath(file)) === (await realpath(other));
  } catch {
    return false;
  }
}
