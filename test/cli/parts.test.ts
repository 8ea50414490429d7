import { describe, expect, test } from "vitest";
import { type Call, parseLine } from "../../dist/cli/call.js";
import { Fingerprints } from "../../dist/cli/fingerprints.js";
import { readLines } from "../../dist/cli/lines.js";
import { duration, Meter, type Progress, renderBar, renderPlain } from "../../dist/cli/progress.js";

async function* chunks(...parts: readonly (string | Uint8Array)[]) {
  for (const part of parts) yield typeof part === "string" ? Buffer.from(part) : part;
}

async function lines(source: AsyncIterable<Uint8Array>, maxLength?: number) {
  const found: (string | undefined)[] = [];
  for await (const { number, text } of readLines(source, maxLength)) {
    found.push(text);
    expect(number).toBe(found.length);
  }
  return found;
}

describe("lines", () => {
  test("are the same however the bytes are cut", async () => {
    const text = "\uFEFFone\r\ntwö\n\n€uro\n";
    const bytes = Buffer.from(text);
    const expected = ["one", "twö", "", "€uro"];
    expect(await lines(chunks(text))).toEqual(expected);
    expect(await lines(chunks(...Array.from(bytes, (byte) => Uint8Array.of(byte))))).toEqual(expected);
    expect(await lines(chunks("last", " line"))).toEqual(["last line"]);
    expect(await lines(chunks())).toEqual([]);
  });

  test("that are too long are dropped, and the others are not", async () => {
    expect(await lines(chunks("ok\n", "x".repeat(8), "x".repeat(8), "y\nok\n", "123456\n", "z".repeat(9)), 5)).toEqual([
      "ok",
      undefined,
      "ok",
      undefined,
      undefined,
    ]);
  });
});

describe("calls", () => {
  const parse = (text: string, added: [string, string][] = []) => parseLine({ number: 3, text }, added) as Call;

  test("have POST as the method of a body, and the content type of JSON", () => {
    expect(parse('{"url":"http://h/","body":{"a":1}}').init).toEqual({
      method: "POST",
      headers: [["content-type", "application/json"]],
      body: '{"a":1}',
    });
    expect(parse('{"url":"http://h/","body":"a"}').init).toEqual({ method: "POST", headers: [], body: "a" });
    const csv: [string, string] = ["content-type", "text/csv"];
    expect(parse('{"url":"http://h/","body":{}}', [csv]).init.headers).toEqual([csv]);
    expect(parse('{"url":"http://h/","headers":{"Content-Type":"x"}}', [csv]).init.headers).toEqual([
      ["Content-Type", "x"],
    ]);
    expect(parse("http://h/?a").init).toEqual({ method: "GET", headers: [] });
  });

  test.each([
    ['{"url":5}', "got a number"],
    ["{}", "got none"],
    ['{"url":"http://h/","method":5}', "`method`"],
    ['{"url":"http://h/","headers":[]}', "`headers`"],
    ['{"url":"http://h/","headers":{"a":{}}}', "header `a`"],
    ['{"url":"http://h/","body":5}', "`body`"],
    ['{"url":"http://h/","id":""}', "`id`"],
    ["{", "no JSON"],
  ])("%s is none", (text, message) => {
    expect(parseLine({ number: 3, text })).toEqual({ line: 3, invalid: expect.stringContaining(message) as string });
  });
});

test("fingerprints know what was added, through growth, and nothing else", () => {
  const set = new Fingerprints();
  for (let i = 0; i < 20_000; i++) expect(set.add(`id ${i}`)).toBe(true);
  for (let i = 0; i < 20_000; i++) expect(set.has(`id ${i}`)).toBe(true);
  for (let i = 0; i < 20_000; i++) expect(set.has(`id ${-i - 1}`)).toBe(false);
  expect(set.add("id 7")).toBe(false);
});

describe("progress", () => {
  const progress: Progress = {
    done: 1234,
    total: 10_000,
    perSecond: 9.94,
    retries: 1,
    failed: 2,
    left: 860_000,
  };

  test("is a bar with all facts on a wide terminal, and fits into a narrow one", () => {
    expect(renderBar(progress, 120)).toBe(
      "▕██▉                     ▏ 1,234/10,000  12%  9.9/s  1 retry  2 failed  ETA 14m20s",
    );
    expect(renderBar({ ...progress, done: 10_000, left: 0 }, 120)).toContain(`▕${"█".repeat(24)}▏ 10,000/10,000  100%`);
    expect(renderBar(progress, 40)).toBe("1,234/10,000  12%  9.9/s  1 retry  2 fa");
  });

  test("has no bar, share or ETA while the total is not known", () => {
    const unknown = { ...progress, total: undefined, left: undefined };
    expect(renderBar(unknown, 120)).toBe("1,234 done  9.9/s  1 retry  2 failed");
    expect(renderPlain({ ...unknown, note: "paused" })).toBe("1,234 done, 9.9/s, 1 retry, 2 failed, paused");
  });

  test("shows durations in two units", () => {
    const shown = [0, 999, 61_000, 3_600_000, 7_500_000, 200_000_000].map(duration);
    expect(shown).toEqual(["0s", "1s", "1m01s", "1h00m", "2h05m", "2d07h"]);
  });

  test("measures the last ten seconds, and corrects an ETA that calls do not keep up with", () => {
    const meter = new Meter();
    for (let at = 0; at <= 30_000; at += 1000) meter.read(at < 15_000 ? 0 : (at - 15_000) / 10, at);
    expect(meter.read(1500, 30_000)).toBe(100);
    expect(meter.correct({ done: 1500, total: 2500, left: 9000 })).toBe(9000);
    expect(meter.correct({ done: 1500, total: 101_500, left: 100_000 })).toBe(1_000_000);
    expect(new Meter().correct({ done: 0, total: 10, left: 1000 })).toBe(1000);
  });
});
