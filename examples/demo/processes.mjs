// @ts-check
// Child processes that answer, and that end when this one ends, however it ends.
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";

/** @typedef {import("node:child_process").ChildProcess} ChildProcess */

/** @type {Set<ChildProcess>} */
const children = new Set();
const ENOUGH_MS = 3000;

/** Starts a script of this folder; resolves with the child and its first message. */
export async function start(/** @type {string} */ script, /** @type {string[]} */ ...args) {
  const child = fork(join(import.meta.dirname, script), args);
  children.add(child);
  return { child, message: await answer(child) };
}

/** @returns {Promise<any>} the next message of a child */
export async function answer(/** @type {ChildProcess} */ child) {
  const settled = new AbortController();
  const { signal } = settled;
  const ended = once(child, "exit", { signal }).then(([code]) => {
    throw new Error(`${child.spawnargs[1]} ended with code ${code}`);
  });
  try {
    const [message] = await Promise.race([once(child, "message", { signal }), ended]);
    return message;
  } finally {
    // Removes the listeners of the one that lost.
    ended.catch(() => {});
    settled.abort();
  }
}

/** Lets all children go, which is their sign to end; kills what has not ended in time. */
export async function stopAll() {
  const ends = [...children].map(async (child) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const killer = setTimeout(() => child.kill("SIGKILL"), ENOUGH_MS);
    const exit = once(child, "exit");
    if (child.connected) child.disconnect();
    await exit;
    clearTimeout(killer);
  });
  await Promise.all(ends);
}
