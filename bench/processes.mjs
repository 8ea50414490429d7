// @ts-check
// Child processes that answer one message with one message.
import { fork } from "node:child_process";
import { once } from "node:events";

const READY_MS = 20_000;
const ANSWER_MS = 180_000;

/** @typedef {{ type: string, [field: string]: unknown }} Message */

/** Where children write CPU profiles, when they are asked to. */
export const profile = { folder: /** @type {string | undefined} */ (undefined) };

/**
 * Starts `script` (a file beside this one) with `input`, and returns when it says that it is ready.
 * @param {string} script
 * @param {object} input
 */
export async function start(script, input) {
  const profiling = profile.folder === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", profile.folder];
  const child = fork(new URL(script, import.meta.url), [JSON.stringify(input)], {
    execArgv: ["--expose-gc", ...(script === "child.mjs" ? profiling : [])],
    serialization: "advanced",
  });
  const exited = once(child, "exit");
  /** @type {((message: Message) => void)[]} */
  const waiting = [];
  child.on("message", (/** @type {Message} */ message) => waiting.shift()?.(message));
  const answer = (/** @type {number} */ patience) =>
    new Promise((/** @type {(message: Message) => void} */ resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${script} did not answer within ${patience} ms`)), patience);
      const gone = () => {
        clearTimeout(timer);
        reject(new Error(`${script} ended early (${JSON.stringify(input)})`));
      };
      child.once("exit", gone);
      waiting.push((message) => {
        clearTimeout(timer);
        child.off("exit", gone);
        if (message.type === "error") reject(new Error(`${script}: ${String(message.error)}`));
        else resolve(message);
      });
    });
  const ready = await answer(READY_MS);
  return {
    ready,
    /** @param {string} type @param {object} [details] */
    ask(type, details = {}) {
      const answered = answer(ANSWER_MS);
      child.send({ type, ...details });
      return answered;
    },
    /** Ends the process at once, with all that waits in it. */
    async stop() {
      if (child.connected) child.disconnect();
      const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
      await exited;
      clearTimeout(timer);
    },
  };
}

/** @typedef {Awaited<ReturnType<typeof start>>} Child */

/**
 * The other side: answers messages by the functions in `answers`, and ends with its parent.
 * @param {Record<string, (message: Message) => unknown>} answers
 * @param {object} [ready] sent with the word that it is ready
 */
export function serve(answers, ready = {}) {
  const answer = async (/** @type {Message} */ message) => {
    try {
      const result = await answers[message.type]?.(message);
      process.send?.({ type: "done", ...(typeof result === "object" ? result : {}) });
    } catch (error) {
      process.send?.({ type: "error", error: error instanceof Error ? error.stack : String(error) });
    }
  };
  process.on("message", (/** @type {Message} */ message) => void answer(message));
  process.once("disconnect", () => process.exit());
  process.send?.({ type: "ready", ...ready });
}
