import { isUtf8 } from "node:buffer";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { UsageError } from "./arguments.js";
import { type CallResult, SpillwayError, UpstreamError } from "../index.js";

/** What a line of the output says about whose result it is. */
export interface Subject {
  /** The id that the line gives, else its number. */
  readonly id: string | number;
  readonly line: number;
  /** Absent for a line that is no call. */
  readonly url?: string;
}

/** Writes results as JSON Lines, as fast as they are taken. */
export class Results {
  readonly #stream: Writable;
  readonly #bodies: string | undefined;
  #drained: Promise<void> | undefined;
  /** Called before each write. */
  onWrite: (() => void) | undefined;

  private constructor(stream: Writable, bodies: string | undefined) {
    this.#stream = stream;
    this.#bodies = bodies;
  }

  /**
   * Opens before anything is sent what results will be written to.
   *
   * @param file stdout when undefined.
   * @param bodies folder for the bodies of responses; when undefined they are part of the results.
   * @throws {UsageError}
   */
  static async open(file: string | undefined, bodies: string | undefined, append: boolean): Promise<Results> {
    try {
      if (bodies !== undefined) await mkdir(bodies, { recursive: true });
      if (file === undefined) return new Results(process.stdout, bodies);
      const stream = createWriteStream(file, { flags: append ? "a" : "w" });
      await once(stream, "open");
      return new Results(stream, bodies);
    } catch (error) {
      throw new UsageError(`Cannot write results: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** The reader of stdout has gone, or the disk is full. */
  onError(listener: (error: Error) => void): void {
    this.#stream.on("error", listener);
  }

  async answer(subject: Subject, result: CallResult): Promise<void> {
    const { status, attempts, waited } = result;
    const body = await this.#keep(subject, result);
    await this.#write({ ...subject, status, headers: headersOf(result.headers), ...body, attempts, waited });
  }

  async failure(subject: Subject, error: { readonly code: string; readonly message: string }): Promise<void> {
    const { status, attempts } = error instanceof UpstreamError ? error : {};
    const { code, message } = error;
    await this.#write({ ...subject, status, attempts, error: { code, message } });
  }

  async #keep({ line }: Subject, { body, bodyDropped }: CallResult): Promise<object> {
    if (bodyDropped) return { bodyDropped };
    if (this.#bodies !== undefined) {
      const path = join(this.#bodies, String(line));
      await writeFile(path, body);
      return { path };
    }
    return isUtf8(body) ? { body: body.toString("utf8") } : { bodyBase64: body.toString("base64") };
  }

  async #write(record: object): Promise<void> {
    this.onWrite?.();
    if (this.#stream.destroyed || this.#stream.write(`${JSON.stringify(record)}\n`)) return;
    // One wait for all: as many listeners as results would be a warning.
    this.#drained ??= new Promise((resolve) => {
      const done = (): void => {
        this.#stream.off("drain", done).off("close", done);
        this.#drained = undefined;
        resolve();
      };
      this.#stream.on("drain", done).on("close", done);
    });
    await this.#drained;
  }

  /** Everything has reached the operating system. */
  async close(): Promise<void> {
    const stream = this.#stream;
    if (stream.destroyed) return;
    await new Promise<void>((resolve) => {
      stream.once("error", () => resolve());
      if (stream === process.stdout) stream.write("", () => resolve());
      else stream.end(() => resolve());
    });
  }
}

function headersOf(headers: Headers): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.fromEntries(headers);
  const cookies = headers.getSetCookie();
  if (cookies.length > 1) record["set-cookie"] = cookies;
  return record;
}

/** An error as it is written to the output. */
export function describe(error: unknown): { readonly code: string; readonly message: string } {
  if (error instanceof SpillwayError) return error;
  return { code: "ERR_UNEXPECTED", message: error instanceof Error ? error.message : String(error) };
}
