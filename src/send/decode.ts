import { promisify } from "node:util";
import { brotliDecompress, constants, gunzip, inflate, inflateRaw } from "node:zlib";

interface Bounds {
  readonly maxOutputLength: number;
  /** What the decoder makes of a body that ends too early: as fetch does, what there is of it. */
  readonly finishFlush: number;
}
type Decode = (body: Buffer, bounds: Bounds) => Promise<Buffer>;

const gzip: Decode = promisify<Buffer, Bounds, Buffer>(gunzip);
const wrapped: Decode = promisify<Buffer, Bounds, Buffer>(inflate);
const bare: Decode = promisify<Buffer, Bounds, Buffer>(inflateRaw);
const brotli: Decode = promisify<Buffer, Bounds, Buffer>(brotliDecompress);

/** A map: what a server names may be a property of every object. */
const DECODERS: ReadonlyMap<string, Decode> = new Map<string, Decode>([
  ["identity", async (body) => body],
  ["gzip", gzip],
  ["x-gzip", gzip],
  // Some servers leave out the header that RFC 9110 (8.4.1.2) asks for.
  ["deflate", async (body, bounds) => (((body[0] ?? 0) & 15) === 8 ? wrapped : bare)(body, bounds)],
  ["br", async (body, bounds) => brotli(body, { ...bounds, finishFlush: constants.BROTLI_OPERATION_FLUSH })],
]);

/** As many as fetch takes: each of them may be as large as the result. */
const MOST_CODINGS = 5;

/**
 * A body as it was before its server compressed it, as fetch hands it out.
 *
 * @param encoding the Content-Encoding of the response, if it has one: codings in the order in which they were applied.
 * @param maxBytes a larger one is not decoded to its end: a few bytes may stand for a gigabyte.
 * @returns undefined for what is damaged, or encoded in a way that is not known here.
 */
export async function decoded(
  body: Buffer,
  encoding: string | null | undefined,
  maxBytes: number,
): Promise<Buffer | "too large" | undefined> {
  const codings = encoding?.trim() ? encoding.toLowerCase().split(",") : [];
  const decoders = codings.toReversed().flatMap((coding) => DECODERS.get(coding.trim()) ?? []);
  if (decoders.length < codings.length || codings.length > MOST_CODINGS) return undefined;
  const bounds = { maxOutputLength: maxBytes, finishFlush: constants.Z_SYNC_FLUSH };
  try {
    let plain = body;
    for (const decode of decoders) if (plain.byteLength > 0) plain = await decode(plain, bounds);
    return plain;
  } catch (error) {
    return error instanceof RangeError ? "too large" : undefined;
  }
}
