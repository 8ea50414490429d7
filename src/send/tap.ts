import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import type { FeedbackResponse } from "./feedback/types.js";

/** A larger body is not looked at. */
const MOST_BYTES = 1_048_576;

const DECODERS: Readonly<Record<string, (body: Buffer) => Promise<Buffer>>> = {
  identity: async (body) => body,
  gzip: promisify<Buffer, Buffer>(gunzip),
  "x-gzip": promisify<Buffer, Buffer>(gunzip),
  deflate: promisify<Buffer, Buffer>(inflate),
  br: promisify<Buffer, Buffer>(brotliDecompress),
};

/** Listens to the body of a response that belongs to somebody else, as it passes. */
export class Tap {
  #chunks: Uint8Array[] | undefined = [];
  #bytes = 0;

  /** @param chunk not copied: it must not be written to afterwards. */
  hear(chunk: unknown): void {
    if (!(chunk instanceof Uint8Array)) return;
    this.#bytes += chunk.byteLength;
    if (this.#bytes > MOST_BYTES) this.#chunks = undefined;
    this.#chunks?.push(chunk);
  }

  /** The text of what was heard; undefined when it was too much, or is encoded in a way that is not known here. */
  async text({ headers }: FeedbackResponse): Promise<string | undefined> {
    const decode = DECODERS[headers.get("content-encoding")?.trim().toLowerCase() || "identity"];
    if (this.#chunks === undefined || decode === undefined) return undefined;
    const body = await decode(Buffer.concat(this.#chunks)).catch(() => undefined);
    return body?.toString("utf8");
  }
}
