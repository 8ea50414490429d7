import { createHash } from "node:crypto";

/** No bucket name is longer. */
export const MAX_BUCKET_LENGTH = 200;
const MAX_LIMIT_PART = 100;

/** The parts of a bucket's name. */
interface BucketParts {
  /** The limit's part, as {@link limitPart} gives it. */
  readonly limit: string;
  /** Host and key, as far as the bucket has them; undefined when the name was shortened and no longer tells. */
  readonly rest: readonly string[] | undefined;
}

/**
 * The name of a bucket: the limit's name, then host and key, each behind a `|`.
 *
 * It is unique, at most {@link MAX_BUCKET_LENGTH} characters of printable ASCII, and holds none of `:`, `{` and `}`,
 * which mean something in a Redis key. One that would be longer keeps a readable head and ends in a hash.
 */
export function bucketName(limit: string, rest: readonly string[]): string {
  return shorten([limitPart(limit), ...rest.map(encode)].join("|"), MAX_BUCKET_LENGTH);
}

/** The part of a bucket's name that says which limit it belongs to. It survives the shortening of the whole name. */
export function limitPart(limit: string): string {
  return shorten(encode(limit), MAX_LIMIT_PART);
}

/** A text of the caller's as a part of a Redis key: unique, and as short and harmless as a bucket's name. */
export function keyPart(text: string): string {
  return shorten(encode(text), MAX_BUCKET_LENGTH);
}

/** Reads a bucket's name. */
export function parseBucketName(bucket: string): BucketParts {
  const [limit = "", ...rest] = bucket.split("|");
  try {
    return { limit, rest: rest.some((part) => part.includes("~")) ? undefined : rest.map(decodeURIComponent) };
  } catch {
    // Not a name of ours: its host and key are not known.
    return { limit, rest: undefined };
  }
}

/** `~` marks a hash, so that a text must not bring one of its own. */
function encode(text: string): string {
  return text.replace(/[^\x21-\x7e]+|[%|:{}]/g, encodeURIComponent).replaceAll("~", "%7E");
}

function shorten(text: string, max: number): string {
  if (text.length <= max) return text;
  const hash = createHash("sha256").update(text).digest("base64url");
  return `${text.slice(0, max - hash.length - 1)}~${hash}`;
}
