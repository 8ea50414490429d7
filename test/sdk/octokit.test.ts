import { Octokit } from "@octokit/core";
import { retry } from "@octokit/plugin-retry";
import { throttling } from "@octokit/plugin-throttling";
import type { Client } from "spillway";
import { expect, test, vi } from "vitest";
import { until } from "../helpers/wait.js";
import { type Account, all, expectOneRefusalAtMost, expectOneRefusalEach, somebodyElse, throttled } from "./account.js";
import { openGitHub } from "./servers/github.js";

vi.setConfig({ testTimeout: 40_000 });

const COUNT = 45;
const limit = { rate: "40/2s", concurrency: 20 } as const;

/** The plugins that the package `octokit` consists of. */
const Patient = Octokit.plugin(retry, throttling);
const patient = ({ url }: Account, { fetch }: Client): Octokit =>
  new Patient({
    baseUrl: url,
    request: { fetch },
    throttle: { onRateLimit: () => true, onSecondaryRateLimit: () => true },
  });

/** One that backs off for one, four and nine seconds, and does not read when to come back. */
const Hasty = Octokit.plugin(retry);
const hasty = ({ url }: Account, { fetch }: Client): Octokit => new Hasty({ baseUrl: url, request: { fetch } });

const readAll = (octokits: readonly Octokit[]): Promise<number[]> =>
  all(COUNT, octokits, async (octokit, number) => {
    const issue = { owner: "o", repo: "r", issue_number: number, headers: { "x-call": `${number}` } };
    return (await octokit.request("GET /repos/{owner}/{repo}/issues/{issue_number}", issue)).status;
  });

test("Octokit within the limit is never refused", async () => {
  await using account = await openGitHub({ primary: 40, points: 40, status: 403 });
  await using pair = throttled({ [account.host]: limit });
  expect(await readAll(pair.clients.map((client) => patient(account, client)))).toEqual(Array(COUNT).fill(200));
  expect(account.refused).toEqual([]);
  expect(account.arrivals.length).toBe(COUNT);
});

test.each([
  { name: "the hour", quota: { primary: 40, points: 1_000, status: 403 }, method: "GET", connect: patient },
  {
    name: "the points of a minute",
    quota: { primary: 1_000, points: 200, status: 403 },
    method: "PUT",
    connect: patient,
  },
  {
    name: "the hour, without a plugin that waits",
    quota: { primary: 40, points: 1_000, status: 429 },
    method: "GET",
    connect: hasty,
  },
] as const)("Octokit is refused once a call at most when somebody else has used up $name", async (row) => {
  await using account = await openGitHub(row.quota);
  await using pair = throttled({ [account.host]: limit });
  const calls = readAll(pair.clients.map((client) => row.connect(account, client)));
  await until(() => account.arrivals.length >= 5, { what: "the first calls" });
  await somebodyElse(account, "/user", 40, { method: row.method });
  expect(await calls).toEqual(Array(COUNT).fill(200));
  expectOneRefusalEach(account);
});

test("Octokit is refused once a call at most when its limit is half of what was declared, with adaptive", async () => {
  await using account = await openGitHub({ primary: 24, points: 1_000, status: 403 });
  await using pair = throttled({ [account.host]: { ...limit, adaptive: true } });
  expect(await readAll(pair.clients.map((client) => patient(account, client)))).toEqual(Array(COUNT).fill(200));
  // Where the last call that had room was answered before the next one started, there is none.
  expectOneRefusalAtMost(account);
});
