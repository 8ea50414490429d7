// @ts-check
// Arithmetic on series of measurements.

/** The value below which a share `q` of the values lies. @param {readonly number[]} values @param {number} q */
export function quantile(values, q) {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

export const median = (/** @type {readonly number[]} */ values) => quantile(values, 0.5);

/** The most starts in any window [t, t + ms). @param {readonly number[]} at ascending @param {number} ms */
export function mostInWindow(at, ms) {
  let most = 0;
  let first = 0;
  for (const [last, time] of at.entries()) {
    while ((at[first] ?? time) + ms <= time) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

/** Time between one start and the next. @param {readonly number[]} at ascending */
export function gaps(at) {
  return at.slice(1).map((time, i) => time - (at[i] ?? time));
}

/**
 * How far calls started from their place in the queue, in places.
 * @param {readonly number[]} order numbers of the calls, in order of arrival
 */
export function displacement(order) {
  const off = order.map((number, place) => Math.abs(number - place));
  const total = off.reduce((sum, one) => sum + one, 0);
  return { average: total / Math.max(1, off.length), most: off.reduce((most, one) => Math.max(most, one), 0) };
}
