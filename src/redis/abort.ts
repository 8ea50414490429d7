const hubs = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `listener` once when the signal aborts, until the returned function is called. A signal finds its listeners one
 * by one, which thousands of calls that wait on the same one would feel; here it has one, and the others are in a set.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  let listeners = hubs.get(signal);
  if (listeners === undefined) {
    const created = new Set<() => void>();
    hubs.set(signal, created);
    signal.addEventListener("abort", () => created.forEach((each) => each()), { once: true });
    listeners = created;
  }
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
