// A program that gets the options of its worker wrong, and catches that. It has nothing to close, and must end by itself.
import { createWorker, defineLimits } from "spillway";

const { redis, prefix, options } = JSON.parse(process.argv[2] ?? "{}");
const limits = defineLimits({ "api.example.com": { rate: "1/s" } });
for (const wrong of options) {
  try {
    createWorker({ redis, prefix, limits, ...wrong });
  } catch (error) {
    process.stdout.write(`${error instanceof Error && "option" in error ? String(error.option) : String(error)}\n`);
  }
}
// The parent's channel is the only thing that would keep it alive.
process.disconnect();
