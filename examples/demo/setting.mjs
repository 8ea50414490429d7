// @ts-check
// What the processes of the demo agree on.
import { defineLimits } from "spillway";

/** Starts that the upstream allows in any second, and that the limit below declares. */
export const RATE = 50;
/** Calls that may wait. */
export const CAPACITY = 100;

/**
 * @param {string} host Where the upstream is.
 * @param {number} lateness How late a start may be, in ms.
 * @param {string} name Who sends, for the picture: told to the upstream in a header, which never enters Redis.
 */
export const limitsFor = (host, lateness, name) =>
  defineLimits({
    [host]: {
      rate: { limit: RATE, per: "1s" },
      capacity: CAPACITY,
      lateness,
      headers: () => ({ "x-sent-by": name }),
    },
  });

/** Milliseconds on the clock that all processes of this machine share. */
export const now = () => Number(process.hrtime.bigint()) / 1e6;

/** The terminal sends Ctrl-C to every process; only the first one acts on it, and the others end when it lets go. */
export function endWithParent(/** @type {() => unknown} */ end) {
  process.on("SIGINT", () => {});
  process.once("disconnect", end);
  if (!process.connected) end();
}

/** Where the first process has gone, there is nobody to tell. */
export const tellParent = (/** @type {object} */ message) => process.send?.(message, undefined, undefined, () => {});
