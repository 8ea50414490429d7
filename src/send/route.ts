import { UpstreamError } from "../errors.js";
import type { BucketRef, Limits } from "../limits/define.js";
import { costOf } from "../limits/ask.js";
import type { StoredRequest } from "../queue/call.js";
import { newId } from "../queue/ids.js";
import { readTerms } from "../queue/terms.js";
import { type AttemptResponse, prepareHeaders } from "./attempt.js";
import { redirected } from "./redirect.js";

/** As in fetch. */
const MOST_REDIRECTS = 20;

/** One request. */
export interface Hop {
  /** Under which it takes a slot. */
  readonly id: string;
  /** What it weighs there. */
  readonly cost: number;
  readonly ref: BucketRef;
  readonly request: StoredRequest;
}

/** How far a call has got: which request is next, after the redirects that it has followed. */
export class Route {
  readonly #limits: Limits;
  readonly #start: Hop;
  #hop: Hop;
  #redirects = 0;

  constructor(limits: Limits, start: Hop) {
    this.#limits = limits;
    this.#start = start;
    this.#hop = start;
  }

  /** The next request. */
  get hop(): Hop {
    return this.#hop;
  }

  /** Whether a server has answered with a redirect already. */
  get begun(): boolean {
    return this.#hop !== this.#start;
  }

  /** Goes back to the request of the call itself, for a further attempt. */
  restart(): void {
    this.#hop = this.#start;
    this.#redirects = 0;
  }

  /**
   * The headers of the next request, with those that its limit adds (see {@link prepareHeaders}) at the origin of the call
   * itself: a server must not have us use our credentials for another one.
   */
  async headers(closing: AbortSignal): Promise<string[]> {
    const { ref, request } = this.#hop;
    const isHome = !this.begun || new URL(request.url).origin === new URL(this.#start.request.url).origin;
    return isHome ? prepareHeaders(request, this.#start.id, ref.limit, closing) : request.headers.flat();
  }

  /**
   * Goes on to where the response leads, if it is a redirect that is to be followed; otherwise it is the result.
   *
   * @throws {UnknownHostError} when no limit covers that host; {UpstreamError} when it leads nowhere; {InvalidCallError}
   *   when a function of that limit fails.
   */
  follow(response: AttemptResponse, attempts: number): boolean {
    if (this.#start.request.redirect === "manual") return false;
    const request = this.#next(response, attempts);
    if (request === undefined) return false;
    const { url, method, encoding, body: stored } = request;
    const body = encoding === undefined ? stored : undefined;
    const headers = new Headers(request.headers.map(([name, value]): [string, string] => [name, value]));
    const ref = this.#limits.match(url, { method, headers });
    const { id, ref: home, cost } = this.#start;
    const usualCost = (): number => costOf(ref.limit, { url: new URL(url), method, headers, body });
    this.#hop = {
      request,
      ref,
      // In another bucket this id may be that of another call.
      id: ref.bucket === home.bucket ? id : newId(),
      cost: ref.limit === home.limit ? cost : readTerms({}, usualCost).cost,
    };
    return true;
  }

  #next(response: AttemptResponse, attempts: number): StoredRequest | undefined {
    const { status } = response;
    const failed = (why: string): Error =>
      new UpstreamError({ message: `Redirect not followed: ${why}`, status, attempts });
    let request: StoredRequest | undefined;
    try {
      request = redirected(this.#hop.request, response);
    } catch (error) {
      throw failed(error instanceof Error ? error.message : String(error));
    }
    if (request !== undefined && ++this.#redirects > MOST_REDIRECTS)
      throw failed(`more than ${MOST_REDIRECTS} of them`);
    return request;
  }
}
