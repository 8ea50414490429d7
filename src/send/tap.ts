import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import type { FeedbackResponse } from "./feedback/types.js";

/** A larger body is not looked at, neither as it came nor decoded: a few bytes may stand for a gigabyte. */
const MOST_BYTES = 1_048_576;

type Decode = (body: Buffer, bounds: { readonly maxOutputLength: number }) => Promise<Buffer>;

/** A map: what a server names may be a property of every object. */
const DECODERS: ReadonlyMap<string, Decode> = new Map([
  ["identity", async (body: Buffer): Promise<Buffer> => body],
  ["gzip", promisify<Buffer, object, Buffer>(gunzip)],
  ["x-gzip", promisify<Buffer, object, Buffer>(gunzip)],
  ["deflate", promisify<Buffer, object, Buffer>(inflate)],
  ["br", promisify<Buffer, object, Buffer>(brotliDecompress)],
]);

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
    const decode = DECODERS.get(headers.get("content-encoding")?.trim().toLowerCase() || "identity");
    if (this.#chunks === undefined || decode === undefined) return undefined;
    const body = await decode(Buffer.concat(this.#chunks), { maxOutputLength: MOST_BYTES }).catch(() => undefined);
    return body?.toString("utf8");
  }
}
