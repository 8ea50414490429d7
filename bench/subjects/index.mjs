// @ts-check
/**
 * What is compared. Each adapter does the same work in the way its library is meant to be used.
 *
 * @typedef {object} Setting
 * @property {string} redis URL
 * @property {string} host of the upstream
 * @property {number} rate calls a second
 * @property {number} [index] which of the processes this is, from 0
 * @property {number} [processes]
 * @property {boolean} [paused] nothing leaks out
 * @property {Subject} subject
 *
 * @typedef {object} Subject
 * @property {string} name
 * @property {string} library file in this folder
 * @property {string} [variant]
 * @property {string} [module] another build of spillway
 * @property {boolean} clustered several processes share one limit
 * @property {boolean} fills its queue is in Redis, and can be filled before anything drains it
 *
 * @typedef {object} Producer
 * @property {(n: number, body?: string) => Promise<unknown>} one adds call number n
 * @property {(first: number, count: number) => Promise<unknown>} many adds that many calls at once
 * @property {() => Promise<unknown>} close
 *
 * @typedef {object} Adapter
 * @property {(setting: Setting) => Promise<Producer>} [produce] opens a queue in Redis to add calls to
 * @property {(setting: Setting) => Promise<void>} [drain] starts calling what was added, or calls of its own
 * @property {(setting: Setting) => Promise<Record<string, (path: string) => Promise<unknown>>>} [callers] ways to make
 *   one call and wait for its response
 * @property {(setting: Setting, count: number) => Promise<void>} [hold] has that many calls wait in this process
 */

/** The highest rate there is: far above what a machine can do. */
export const UNLIMITED = 1_000_000;

/** @type {Subject} */
export const spillway = { name: "spillway", library: "spillway", clustered: true, fills: true };
/** @type {Subject} */
export const exact = { ...spillway, name: "spillway, lateness 0", variant: "exact" };
/** @type {Subject} */
export const bare = { name: "bullmq, no limit", library: "bullmq", clustered: true, fills: true };
/** @type {Subject} */
export const spaced = { ...bare, name: "bullmq, 1 per N ms", variant: "spaced" };
/** @type {Subject} */
export const windowed = { ...bare, name: "bullmq, N per second", variant: "windowed" };
/** @type {Subject} */
export const bottleneck = { name: "bottleneck, clustered", library: "bottleneck", clustered: true, fills: false };
/** @type {Subject} */
export const flexible = {
  name: "rate-limiter-flexible queue",
  library: "rate-limiter-flexible",
  clustered: true,
  fills: false,
};
/** @type {Subject} */
export const pThrottle = { name: "p-throttle, strict", library: "p-throttle", clustered: false, fills: false };
/** @type {Subject} */
export const pQueue = { name: "p-queue, strict", library: "p-queue", clustered: false, fills: false };

/** @param {Subject} subject @returns {Promise<Adapter>} */
export const load = (subject) => import(`./${subject.library}.mjs`);
