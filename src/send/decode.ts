import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate, inflateRaw } from "node:zlib";

interface Bounds {
  readonly maxOutputLength: number;
}
type Decode = (body: Buffer, bounds: Bounds) => Promise<Buffer>;

const wrapped: Decode = promisify<Buffer, Bounds, Buffer>(inflate);
const bare: Decode = promisify<Buffer, Bounds, Buffer>(inflateRaw);

/** A map: what a server names may be a property of every object. */
const DECODERS: ReadonlyMap<string, Decode> = new Map<string, Decode>([
  ["gzip", promisify<Buffer, Bounds, Buffer>(gunzip)],
  ["x-gzip", promisify<Buffer, Bounds, Buffer>(gunzip)],
  // Some servers leave out the header that RFC 9110 (8.4.1.2) asks for.
  ["deflate", async (body, bounds) => (((body[0] ?? 0) & 15) === 8 ? wrapped : bare)(body, bounds)],
  ["br", promisify<Buffer, Bounds, Buffer>(brotliDecompress)],
]);

/**
 * A body as it was before its server compressed it, as fetch hands it out.
 *
 * @param encoding the Content-Encoding of the response, if it has one.
 * @param maxBytes a larger one is not decoded to its end: a few bytes may stand for a gigabyte.
 * @returns undefined for what is damaged, or encoded in a way that is not known here.
 */
export async function decoded(
  body: Buffer,
  encoding: string | null | undefined,
  maxBytes: number,
): Promise<Buffer | "too large" | undefined> {
  const name = encoding?.trim().toLowerCase() || "identity";
  if (name === "identity" || body.byteLength === 0) return body;
  const decode = DECODERS.get(name);
  return decode?.(body, { maxOutputLength: maxBytes }).catch((error: unknown) =>
    error instanceof RangeError ? "too large" : undefined,
  );
}
