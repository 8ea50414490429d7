import { decoded } from "./decode.js";
import type { FeedbackResponse } from "./feedback/types.js";
import { HEARD_BYTES } from "./heed.js";

/** Listens to the body of a response that belongs to somebody else, as it passes. */
export class Tap {
  #chunks: Uint8Array[] | undefined = [];
  #bytes = 0;

  /** @param chunk not copied: it must not be written to afterwards. */
  hear(chunk: unknown): void {
    if (!(chunk instanceof Uint8Array)) return;
    this.#bytes += chunk.byteLength;
    if (this.#bytes > HEARD_BYTES) this.#chunks = undefined;
    this.#chunks?.push(chunk);
  }

  /** The text of what was heard; undefined when it was too much, or is encoded in a way that is not known here. */
  async text({ headers }: FeedbackResponse): Promise<string | undefined> {
    if (this.#chunks === undefined) return undefined;
    const body = await decoded(Buffer.concat(this.#chunks), headers.get("content-encoding"), HEARD_BYTES);
    return Buffer.isBuffer(body) ? body.toString("utf8") : undefined;
  }
}
