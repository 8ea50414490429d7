// @ts-check
// The classic limiters, for calls that come in: none waits, each is told at once whether it may go ahead.
import { createLimiter } from "spillway/limiters";

const redis = process.env.REDIS_URL; // none: an embedded one, for development
const logins = createLimiter(redis, { algorithm: "token-bucket", max: 3, refillTime: "1h", refillAmount: 1 });
const searches = createLimiter(redis, { algorithm: "sliding-log", rules: ["2/s", "100/h"] });
try {
  for (let attempt = 1; attempt <= 4; attempt++) {
    const { allowed, remaining, retryAfter } = await logins.take("user:7");
    const hint = allowed ? `${remaining} left` : `again in ${Math.ceil(retryAfter / 60_000)} min`;
    console.log(`login ${attempt}: ${allowed ? "ok" : "refused"}, ${hint}`);
  }

  await searches.block("crawler", "10m", "ignores robots.txt");
  console.log(`crawler: ${(await searches.take("crawler")).blocked}`);

  // What is replayed brings its own time.
  const log = ["12:00:00.0", "12:00:00.4", "12:00:00.8", "12:00:01.1"].map((time) => new Date(`2026-01-01T${time}Z`));
  for (const at of log) console.log(at.toISOString(), (await searches.take("replay", { at })).allowed);
} finally {
  await Promise.all([logins.close(), searches.close()]);
}
