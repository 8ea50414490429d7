import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defineLimits } from "spillway";
import { Reporter } from "../../dist/observe/events.js";
import { Mailbox, type Message } from "../../dist/redis/mailbox.js";
import { Session } from "../../dist/redis/session.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { until } from "../helpers/wait.js";

interface Process extends AsyncDisposable {
  readonly session: Session;
  readonly mailbox: Mailbox;
  readonly warnings: Error[];
}

function start(prefix: string): Process {
  const report = new Reporter();
  const warnings: Error[] = [];
  report.events.on("warning", (warning) => warnings.push(warning));
  const session = new Session({ redis: redisUrl(), prefix, limits: defineLimits({ test: { rate: "1/s" } }) }, report);
  const mailbox = new Mailbox(session);
  mailbox.open();
  const close = async (): Promise<void> => {
    mailbox.close();
    await session.close();
  };
  return { session, mailbox, warnings, [Symbol.asyncDispose]: close };
}

let redis: Redis;
beforeAll(() => {
  redis = new Redis(redisUrl());
});
afterAll(() => redis.disconnect());

const done = (id: string, body: Buffer | undefined): Message => ({ type: "done", id, outcome: '{"ok":true}', body });
const grant = (id: string): Message => ({
  type: "grant",
  id,
  slot: { id, at: 1_800_000_000_000_001, lateness: 10_000, shifted: 17, cost: 3 },
  counted: true,
});

test("every kind of message arrives as it was sent, in order, from another process and from this one", async () => {
  const prefix = uniquePrefix();
  await using here = start(prefix);
  await using there = start(prefix);
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const messages: Message[] = [
    grant("call"),
    { type: "drop", id: "call", why: "full" },
    done("call", everyByte),
    done("call", Buffer.from('\n\n{"type":"drop"}\r\n')),
    done("call", Buffer.alloc(0)),
    done("call", undefined),
    done("call", Buffer.alloc(300_000, 0x0a)),
    { type: "done", id: "call", outcome: '{"message":"line\\nbreak, 猫"}', body: everyByte },
  ];
  const received: Message[] = [];
  here.mailbox.receive("call", (message) => received.push(message));
  for (const sender of [there, here]) {
    received.splice(0);
    for (const message of messages) await sender.mailbox.post(here.session.address, message);
    await until(() => received.length === messages.length);
    expect(received).toEqual(messages);
  }
});

test("what cannot be read does not keep back the rest of its batch", async () => {
  await using here = start(uniquePrefix());
  const received: string[] = [];
  for (const id of ["first", "last"]) here.mailbox.receive(id, (message) => received.push(message.id));
  here.mailbox.receive("throws", () => {
    throw new Error("a bug of a receiver");
  });
  const drop = (id: string): string => `{"type":"drop","id":"${id}","why":"full"}\n`;
  const unreadable = [
    "",
    "\n",
    "no json\n",
    "[1]\n",
    '{"type":"grant","id":"first"}\n',
    '{"type":"later","id":"first"}\n',
  ];
  await redis.rpush(here.session.address, drop("first"), ...unreadable, drop("throws"), drop("last"));
  await until(() => received.length === 2);
  expect(received).toEqual(["first", "last"]);
  expect(here.warnings).toHaveLength(unreadable.length + 1);
});

test("whoever waits for a call hears of it, until he stops; others do not", async () => {
  const prefix = uniquePrefix();
  await using here = start(prefix);
  await using there = start(prefix);
  const heard: string[] = [];
  const stop = here.mailbox.receive("call", () => heard.push("first"));
  here.mailbox.receive("call", () => heard.push("second"));
  here.mailbox.receive("other", () => heard.push("other"));
  await there.mailbox.post(here.session.address, grant("call"));
  await until(() => heard.length === 2);
  expect(heard).toEqual(["first", "second"]);
  stop();
  stop();
  for (const id of ["nobody's", "call", "other"]) await there.mailbox.post(here.session.address, grant(id));
  await until(() => heard.includes("other"));
  expect(heard).toEqual(["first", "second", "second", "other"]);
});

test("a mailbox that nobody empties goes by itself", async () => {
  await using there = start(uniquePrefix());
  const address = `${there.session.prefix}:at:nobody`;
  await there.mailbox.post(address, grant("call"));
  expect(await redis.pttl(address)).toBeGreaterThan(0);
  expect(await redis.pttl(address)).toBeLessThanOrEqual(60_000);
});
