import { describe, expect, it } from "vitest";
import { hear, hearAll } from "./hear.js";

describe("RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-08 and later)", () => {
  it("reads what is left, and until when", () => {
    expect(hear(200, { RateLimit: '"default";r=50;t=30' })).toEqual({
      remaining: 50,
      resetAfter: 30_000,
      source: "RateLimit",
    });
  });

  it("reads policies, and takes the tightest window", () => {
    const headers = {
      "RateLimit-Policy": '"burst";q=100;w=60,"daily";q=1000;w=86400',
      RateLimit: '"burst";r=50;t=30, "daily";r=12;t=7200',
    };
    expect(hear(200, headers)).toEqual({
      remaining: 12,
      resetAfter: 7_200_000,
      policies: [
        { name: "burst", limit: 100, perMs: 60_000, unit: "requests" },
        { name: "daily", limit: 1000, perMs: 86_400_000, unit: "requests" },
      ],
      source: "RateLimit",
    });
  });

  it("pauses for the longest of the windows that are used up", () => {
    const headers = { RateLimit: '"burst";r=0;t=5, "daily";r=0;t=3600, "yearly";r=7;t=9000' };
    expect(hear(200, headers)).toMatchObject({ pauseFor: 3_600_000, remaining: 0 });
    expect(hear(200, headers)?.refused).toBeUndefined();
    expect(hear(429, headers)).toMatchObject({ pauseFor: 3_600_000, refused: true });
  });

  it("does not pause without a time", () => {
    expect(hear(200, { RateLimit: '"default";r=0' })).toEqual({ remaining: 0, source: "RateLimit" });
  });

  it("keeps other quota units apart from requests", () => {
    const headers = {
      "RateLimit-Policy":
        '"bytes";q=65535;w=10;qu="content-bytes", "slots";q=8;qu="concurrent-requests", "r";q=9;pk=:dGVuYW50:',
      RateLimit: '"bytes";r=3;t=4, "r";r=8;t=2;pk=:dGVuYW50:',
    };
    expect(hear(200, headers)).toEqual({
      remaining: 8,
      resetAfter: 2000,
      policies: [
        { name: "bytes", limit: 65_535, perMs: 10_000, unit: "content-bytes" },
        { name: "slots", limit: 8, perMs: undefined, unit: "concurrent-requests" },
        { name: "r", limit: 9, perMs: undefined, unit: "requests" },
      ],
      source: "RateLimit",
    });
    expect(hear(200, { ...headers, RateLimit: '"bytes";r=0;t=4' })).toMatchObject({ pauseFor: 4000 });
  });

  it("reads express-rate-limit's draft-8 headers", () => {
    const headers = {
      "RateLimit-Policy": '"100-in-15min"; q=100; w=900; pk=:ODlhYjI5YjUxMDc4:',
      RateLimit: '"100-in-15min"; r=99; t=870',
    };
    expect(hear(200, headers)).toMatchObject({
      remaining: 99,
      resetAfter: 870_000,
      policies: [{ limit: 100, perMs: 900_000 }],
    });
  });

  it.each([
    ['"default";r=50;t=30,'],
    ['"default;r=50'],
    ["default=;r"],
    ['"default";r="50"'],
    ['"default";r=-1;t=5'],
    ['"default";r=1.5;t=5'],
    ['"default";t=30'],
    ['("default");r=50'],
    [":YQ==:;r=50"],
    ["50"],
    ["\u00e4"],
  ])("ignores %j", (value) => {
    expect(hear(200, { RateLimit: value })).toBeUndefined();
  });

  it.each([['"p";q=0;w=60'], ['"p";w=60'], ['"p";q="9"'], ["p;q"], ["limit=1"], ["(1 2);q=5"]])(
    "ignores the policy %j",
    (value) => {
      expect(hear(200, { "RateLimit-Policy": value })).toBeUndefined();
    },
  );

  it("keeps what is left when only the time is malformed", () => {
    expect(hear(200, { RateLimit: '"p";r=0;t=soon' })).toEqual({ remaining: 0, source: "RateLimit" });
  });

  it("pauses for a month 24 h at a time", () => {
    const { feedback, warnings } = hearAll(200, { RateLimit: '"monthly";r=0;t=1209600' });
    expect(feedback).toMatchObject({ pauseFor: 86_400_000, resetAfter: 1_209_600_000 });
    expect(warnings).toEqual(['RateLimit "monthly": the pause until its reset is more than 1d, taken as that']);
  });
});

describe("older drafts", () => {
  it("reads the dictionary of -07", () => {
    const headers = { "RateLimit-Policy": "100;w=60", RateLimit: "limit=100, remaining=0, reset=5" };
    expect(hear(200, headers)).toEqual({
      pauseFor: 5000,
      remaining: 0,
      resetAfter: 5000,
      policies: [{ name: "100", limit: 100, perMs: 60_000, unit: "requests" }],
      source: "RateLimit",
    });
  });

  it("reads the three headers of -06 with their policy", () => {
    const headers = {
      "RateLimit-Policy": "100;w=60",
      "RateLimit-Limit": "100",
      "RateLimit-Remaining": "50",
      "RateLimit-Reset": "30",
    };
    expect(hear(200, headers)).toEqual({
      remaining: 50,
      resetAfter: 30_000,
      policies: [{ name: "100", limit: 100, perMs: 60_000, unit: "requests" }],
      source: "RateLimit-Remaining",
    });
  });

  it("reads the policies that -05 and before put into RateLimit-Limit", () => {
    const headers = { "RateLimit-Limit": "10, 10;w=1, 50;w=60", "RateLimit-Remaining": "9", "RateLimit-Reset": "1" };
    expect(hear(200, headers)?.policies).toEqual([
      { name: "10", limit: 10, perMs: undefined, unit: "requests" },
      { name: "10", limit: 10, perMs: 1000, unit: "requests" },
      { name: "50", limit: 50, perMs: 60_000, unit: "requests" },
    ]);
  });

  it("tells GitLab's epoch time from seconds", () => {
    const headers = {
      "RateLimit-Limit": "60",
      "RateLimit-Observed": "67",
      "RateLimit-Remaining": "0",
      "RateLimit-Reset": "1777896060",
    };
    expect(hear(429, headers)).toMatchObject({ pauseFor: 60_000, remaining: 0, refused: true });
  });

  it("knows a policy without a state, and lets a vendor's headers tell the state", () => {
    const policy = { "RateLimit-Policy": '"p";q=9;w=3' };
    const policies = [{ name: "p", limit: 9, perMs: 3000, unit: "requests" }];
    expect(hear(200, policy)).toEqual({ policies, source: "RateLimit-Policy" });
    expect(hear(200, { ...policy, "X-RateLimit-Remaining": "4" })).toEqual({
      policies,
      remaining: 4,
      source: "X-RateLimit",
    });
  });
});
