/** The body of somebody else's response, as it passes: what servers send must harm nobody. */
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { Tap } from "../../dist/send/tap.js";

const hear = async (body: Buffer, encoding?: string): Promise<string | undefined> => {
  const tap = new Tap();
  tap.hear(body.subarray(0, 3));
  tap.hear(body.subarray(3));
  return tap.text({ status: 200, headers: { get: (name) => (name === "content-encoding" ? encoding : null) } });
};

const TEXT = '{"used":7}';

test.each([
  [undefined, Buffer.from(TEXT)],
  ["GZIP", gzipSync(TEXT)],
  ["deflate", deflateSync(TEXT)],
  ["deflate", deflateRawSync(TEXT)],
  ["br", brotliCompressSync(TEXT)],
  ["gzip, BR", brotliCompressSync(gzipSync(TEXT))],
  ["gzip", gzipSync(TEXT).subarray(0, -8)],
  ["deflate", deflateSync(TEXT).subarray(0, -4)],
  ["br", brotliCompressSync(TEXT).subarray(0, -1)],
])("reads a body with content-encoding %s", async (encoding, body) => {
  expect(await hear(body, encoding)).toBe(TEXT);
});

test.each(["constructor", "__proto__", "hasOwnProperty", "gzip, br", "gzip, zstd", "zstd", "gzip,"])(
  "leaves %s alone",
  async (encoding) => {
    expect(await hear(Buffer.from(TEXT), encoding)).toBeUndefined();
  },
);

test("does not decode again and again for ever", async () => {
  const codings = (n: number): string => Array.from({ length: n }, () => "gzip").join(", ");
  const often = (n: number): Buffer =>
    Array.from({ length: n }).reduce<Buffer>((body) => gzipSync(body), Buffer.from(TEXT));
  expect(await hear(often(5), codings(5))).toBe(TEXT);
  expect(await hear(often(6), codings(6))).toBeUndefined();
});

test.each([
  ["gzip", gzipSync],
  ["deflate", deflateSync],
  ["br", brotliCompressSync],
] as const)("a small %s that would be a large text is not decoded", async (encoding, compress) => {
  expect(await hear(compress(Buffer.alloc(1_048_577, "x")), encoding)).toBeUndefined();
  expect(await hear(compress(Buffer.alloc(1_048_576, "x")), encoding)).toHaveLength(1_048_576);
});
