import type { Connection } from "./connect.js";
import { hangUp, whenReady } from "./connect.js";
import { bytes, list, number } from "./reply.js";
import { sleep } from "./sleep.js";
import type { Session } from "./session.js";

/** What one process tells another. `grant`: your slot. `drop`: your call left the queue. `done`: its result is there. */
export type Message =
  | {
      readonly type: "grant";
      readonly id: string;
      readonly slot: {
        readonly id: string;
        readonly at: number;
        readonly lateness: number;
        readonly shifted: number;
        readonly cost: number;
      };
      /** Whether the permit counts among the calls in flight. */
      readonly counted: boolean;
    }
  | { readonly type: "drop"; readonly id: string; readonly why: string }
  | { readonly type: "done"; readonly id: string; readonly outcome: string; readonly body: Buffer | undefined };

/** A mailbox that nobody empties goes by itself. */
const KEEP_MS = 60_000;
const BATCH = 64;
const BLOCK_SECONDS = 5;
const NEWLINE = 10;

/**
 * One line of JSON, then the body as it is: bytes are neither escaped nor encoded. The header's fields are `type`, `id`
 * and whatever else the type has.
 */
function encode(message: Message): Buffer {
  if (message.type === "drop") return Buffer.from(`${JSON.stringify(message)}\n`);
  if (message.type === "grant") {
    const { at, lateness, shifted, cost } = message.slot;
    return Buffer.from(`${JSON.stringify({ ...message, slot: [at, lateness, shifted, cost] })}\n`);
  }
  const { body, ...header } = message;
  const line = Buffer.from(`${JSON.stringify({ ...header, inline: body !== undefined })}\n`);
  return body === undefined ? line : Buffer.concat([line, body]);
}

function decode(data: Buffer): Message {
  const end = data.indexOf(NEWLINE);
  const header: unknown = JSON.parse(data.toString("utf8", 0, end));
  if (typeof header !== "object" || header === null || !("type" in header) || !("id" in header)) {
    throw new TypeError("Expected a message with `type` and `id`");
  }
  const id = String(header.id);
  if (header.type === "grant" && "slot" in header) {
    const [at, lateness, shifted, cost] = list(header.slot).map(number);
    const slot = { id, at: at ?? 0, lateness: lateness ?? 0, shifted: shifted ?? 0, cost: cost ?? 1 };
    return { type: "grant", id, slot, counted: "counted" in header && header.counted === true };
  }
  if (header.type === "drop" && "why" in header) return { type: "drop", id, why: String(header.why) };
  if (header.type === "done" && "outcome" in header) {
    const inline = "inline" in header && header.inline === true;
    return { type: "done", id, outcome: String(header.outcome), body: inline ? data.subarray(end + 1) : undefined };
  }
  throw new TypeError(`Expected a known message, got type ${String(header.type)}`);
}

/**
 * The reply list of this process: one Redis list, read by one blocking connection, into which workers anywhere put
 * grants and results. A list keeps what arrives while the reader reconnects.
 */
export class Mailbox {
  readonly #session: Session;
  readonly #receivers = new Map<string, Set<(message: Message) => void>>();
  #connection: Connection | undefined;
  #reading = false;
  #closed = false;

  constructor(session: Session) {
    this.#session = session;
  }

  /** Calls `receive` for each message about this call, until the returned function is called. */
  receive(id: string, receive: (message: Message) => void): () => void {
    const receivers = this.#receivers.get(id) ?? new Set();
    receivers.add(receive);
    this.#receivers.set(id, receivers);
    return () => {
      receivers.delete(receive);
      if (receivers.size === 0 && this.#receivers.get(id) === receivers) this.#receivers.delete(id);
    };
  }

  /** From now on messages of other processes arrive, too; that takes a connection. */
  open(): void {
    if (this.#reading) return;
    this.#reading = true;
    void this.#read();
  }

  /** Puts a message into the mailbox at `address`, which may be this one. */
  async post(address: string, message: Message): Promise<void> {
    if (address === this.#session.address) {
      this.#deliver(message);
      return;
    }
    const commands = await this.#session.commands();
    const replies = await commands.pipeline().rpush(address, encode(message)).pexpire(address, KEEP_MS).exec();
    const error = replies?.[0]?.[0];
    if (error) throw error;
  }

  #deliver(message: Message): void {
    for (const receive of this.#receivers.get(message.id) ?? []) receive(message);
  }

  /** What cannot be read, from a later version perhaps, does not keep back what can. */
  #unpack(data: Buffer): void {
    try {
      this.#deliver(decode(data));
    } catch (error) {
      this.#session.report.warn(error);
    }
  }

  async #read(): Promise<void> {
    while (!this.#closed) {
      try {
        this.#connection ??= await this.#session.connection();
        if (this.#closed) break;
        if (!(await whenReady(this.#connection, BLOCK_SECONDS * 1000))) continue;
        const reply = await this.#connection.blmpopBuffer(
          BLOCK_SECONDS,
          1,
          this.#session.address,
          "LEFT",
          "COUNT",
          BATCH,
        );
        if (reply === null) continue;
        for (const message of list(reply[1])) this.#unpack(bytes(message));
      } catch (error) {
        if (this.#closed) return;
        this.#session.report.connection(error);
        await sleep(50);
      }
    }
    // Closed while the connection was being made.
    if (this.#connection !== undefined) hangUp(this.#connection);
  }

  close(): void {
    this.#closed = true;
    if (this.#connection !== undefined) hangUp(this.#connection);
  }
}
