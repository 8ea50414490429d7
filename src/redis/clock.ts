/** Crystal oscillators stay within this; the bounds of the offset widen by as much, so that old samples fade. */
const DRIFT = 100e-6;

const local = (): number => performance.now() * 1000;

/**
 * The server's clock, as seen from here (Cristian's algorithm, 1989): a reply that carries the server's time bounds the
 * offset by the moments of sending and receiving. The bounds of all samples are intersected, so the estimate is as
 * good as the fastest round trip. All times are in µs. The local side is monotonic.
 */
export class ServerClock {
  #low = -Infinity;
  #high = Infinity;
  #at = 0;
  /** Smoothed round trip in µs. */
  roundTrip = 1000;

  /** True once a reply has been seen. */
  get synchronized(): boolean {
    return this.#high !== Infinity;
  }

  /** Records that the server's clock read `server` somewhere between the local moments `sent` and `received`. */
  sample(sent: number, server: number, received: number): void {
    this.roundTrip += (received - sent - this.roundTrip) / 8;
    const drift = (received - this.#at) * DRIFT;
    const low = Math.max(this.#low - drift, server - received);
    const high = Math.min(this.#high + drift, server - sent);
    // Disjoint bounds: one of the clocks was set, or another server answers now. Only the new sample counts.
    const jumped = low > high;
    this.#low = jumped ? server - received : low;
    this.#high = jumped ? server - sent : high;
    this.#at = received;
  }

  /** The server's time now. */
  now(): number {
    return local() + (this.#low + this.#high) / 2;
  }

  static local(): number {
    return local();
  }
}
