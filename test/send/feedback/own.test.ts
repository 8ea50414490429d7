import { describe, expect, it } from "vitest";
import type { FeedbackReader } from "../../../dist/send/feedback/read.js";
import { hear, hearAll } from "./hear.js";

const window = { "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" };
const spent = { remaining: 0, resetAfter: 9000, pauseFor: 9000 };

describe("a reader of one's own", () => {
  it("is laid over what is read without it", () => {
    const own: FeedbackReader = ({ headers }) => ({ cost: Number(headers.get("X-Cost")) });
    expect(hear(200, { ...window, "X-Cost": "7" }, { own })).toEqual({ ...spent, cost: 7, source: "X-RateLimit" });
    expect(hear(200, { "X-Cost": "7" }, { own })).toEqual({ cost: 7, source: "feedback" });
  });

  it("has the first word about pauses, also about there being none", () => {
    const headers = { ...window, "Retry-After": "3" };
    expect(hear(429, headers, { own: () => ({ pauseFor: 50 }) })).toMatchObject({ pauseFor: 50, source: "feedback" });
    expect(hear(429, headers, { own: () => ({ pauseFor: 0 }) })).toMatchObject({ pauseFor: 0, source: "feedback" });
  });

  it("has no say against Retry-After with a window, but against all other windows", () => {
    const own: FeedbackReader = () => ({ remaining: 0, resetAfter: 40 });
    expect(hear(429, { ...window, "Retry-After": "3" }, { own })).toMatchObject({
      pauseFor: 3000,
      source: "Retry-After",
    });
    expect(hear(200, window, { own })).toMatchObject({ pauseFor: 40, source: "feedback" });
  });

  it("closes the gate for a day at most, however long its window is", () => {
    const own: FeedbackReader = () => ({ remaining: 0, resetAfter: 7 * 86_400_000 });
    const { feedback, warnings } = hearAll(200, {}, { own });
    expect(feedback).toMatchObject({ pauseFor: 86_400_000, resetAfter: 7 * 86_400_000 });
    expect(warnings).toEqual(["feedback: the pause until resetAfter is more than 1d, taken as that"]);
  });

  it("tells a refusal by the status that goes with its pause", () => {
    expect(hear(400, {}, { own: () => ({ pauseFor: 50 }) })?.refused).toBe(true);
    expect(hear(200, {}, { own: () => ({ pauseFor: 50 }) })?.refused).toBeUndefined();
  });

  it("gets status, headers in any case, body and time", () => {
    const seen: unknown[] = [];
    const own: FeedbackReader = ({ status, headers, body, now }) => {
      seen.push(status, headers.get("x-a"), headers.get("X-B"), body, typeof now);
      return undefined;
    };
    expect(hear(200, { "X-A": "1" }, { own, body: "text" })).toBeUndefined();
    expect(seen).toEqual([200, "1", null, "text", "number"]);
  });

  it("may leave everything as it is", () => {
    expect(hear(200, window, { own: () => undefined })).toEqual({ ...spent, source: "X-RateLimit" });
    expect(hear(200, window, { own: () => ({}) })).toMatchObject(spent);
    expect(hear(200, window, { own: () => ({ pauseFor: undefined }) })).toMatchObject(spent);
  });

  it("costs nobody his response when it throws", () => {
    const own: FeedbackReader = () => {
      throw new TypeError("no such header");
    };
    const { feedback, warnings } = hearAll(200, window, { own });
    expect(feedback).toMatchObject(spent);
    expect(warnings).toEqual(["feedback: no such header"]);
  });

  it("does not end the process when it is async and throws later", async () => {
    const own = (): Promise<never> => Promise.reject(new Error("no such header"));
    // @ts-expect-error what TypeScript refuses, JavaScript does
    const { feedback, warnings } = hearAll(200, window, { own });
    expect(feedback).toMatchObject(spent);
    expect(warnings).toEqual(["feedback: expected an object such as { pauseFor: 1000 }, or undefined"]);
    // An unhandled rejection fails the run.
    await new Promise((resolve) => setTimeout(resolve));
  });

  it.each([
    [{ pauseFor: "1m" }, "pauseFor"],
    [{ pauseFor: -1 }, "pauseFor"],
    [{ remaining: Number.NaN }, "remaining"],
    [{ resetAfter: null }, "resetAfter"],
    [{ cost: 5n }, "cost"],
  ])("warns of %o and goes without it", (said, name) => {
    // @ts-expect-error what TypeScript refuses, JavaScript does
    const { feedback, warnings } = hearAll(200, window, { own: () => said });
    expect(feedback).toMatchObject(spent);
    expect(warnings).toEqual([`feedback: expected \`${name}\` to be a number from 0, in ms where it is a time`]);
  });

  it("warns of what it does not know, and hears the rest", () => {
    const { feedback, warnings } = hearAll(200, {}, { own: () => ({ pausefor: 5, cost: 2 }) });
    expect(feedback).toEqual({ cost: 2, source: "feedback" });
    expect(warnings).toEqual([
      "Expected `feedback.pausefor` to be left out, as there is no such option (did you mean `pauseFor`?), got 5",
    ]);
  });

  it.each([[5], ["1m"], [[]], [Promise.resolve({})], [() => 5]])("warns of %o, which is no answer", (said) => {
    // @ts-expect-error what TypeScript refuses, JavaScript does
    const { feedback, warnings } = hearAll(200, window, { own: () => said });
    expect(feedback).toMatchObject(spent);
    expect(warnings).toEqual(["feedback: expected an object such as { pauseFor: 1000 }, or undefined"]);
  });

  it("is capped as everybody else", () => {
    const { feedback, warnings } = hearAll(200, {}, { own: () => ({ pauseFor: 1e12 }) });
    expect(feedback?.pauseFor).toBe(86_400_000);
    expect(warnings).toEqual(["feedback: pauseFor 1000000000000 is more than 1d, taken as that"]);
  });
});
