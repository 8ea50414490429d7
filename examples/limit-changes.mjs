// @ts-check
// A limit is changed while it runs, at once for every process.
import { createClient, defineLimits } from "spillway";

const client = createClient({ limits: defineLimits({ mail: { rate: "1/m", capacity: 10 } }), worker: true });
const mail = client.limit("mail");
try {
  await client.run("mail", () => console.log("first"));
  const second = client.run("mail", () => console.log("second, without waiting for a minute"));
  await mail.set({ rate: "20/s" }, { for: "1h" });
  await second;

  await mail.pause("300ms", "the provider asked for it");
  const third = client.run("mail", () => console.log("third, after the pause"));
  const { rate, paused } = await mail.stats();
  console.log(`${rate.limit} in ${rate.perMs} ms, paused: ${paused?.reason}`);
  await third;

  await mail.block("1h", "the account was closed");
  await client.run("mail", () => {}).catch((error) => console.log(`${error.code}: ${error.reason}`));
} finally {
  await client.close();
}
