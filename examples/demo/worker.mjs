// @ts-check
// A background worker, as it would run in production: it finds the calls that wait, and sends each in its slot.
import { createWorker } from "spillway";
import { endWithParent, limitsFor, tellParent } from "./setting.mjs";

const [redis, host = "", lateness, name = ""] = process.argv.slice(2);
const worker = createWorker({ redis, limits: limitsFor(host, Number(lateness), name), closeTimeout: "2s" });
endWithParent(() => worker.close());
tellParent({ ready: true });
