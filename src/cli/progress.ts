import type { WriteStream } from "node:tty";

/** How far a run has come. */
export interface Progress {
  /** Calls that have ended, those of earlier runs included. */
  readonly done: number;
  /** All calls of the input, where they have been counted. */
  readonly total: number | undefined;
  /** Calls that ended per second, of late. */
  readonly perSecond: number;
  readonly retries: number;
  readonly failed: number;
  /** Ms until the last call starts. */
  readonly left: number | undefined;
  /** What holds it up, such as a pause that the server has asked for. */
  readonly note?: string | undefined;
}

const WIDTH = 24;
const EIGHTHS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/** One line for a terminal of so many columns. */
export function renderBar(progress: Progress, columns: number): string {
  const text = facts(progress).join("  ");
  const { done, total } = progress;
  if (total === undefined || columns < text.length + WIDTH + 4) return text.slice(0, columns - 1);
  return `${bar(total === 0 ? 1 : done / total)} ${text}`;
}

/** One line for a log. */
export function renderPlain(progress: Progress): string {
  return facts(progress).join(", ");
}

function facts({ done, total, perSecond, retries, failed, left, note }: Progress): string[] {
  const percent = total === undefined || total === 0 ? undefined : `${Math.floor((100 * done) / total)}%`;
  return [
    total === undefined ? `${count(done)} done` : `${count(done)}/${count(total)}`,
    percent,
    `${perSecond < 100 ? perSecond.toFixed(1) : count(Math.round(perSecond))}/s`,
    `${count(retries)} ${retries === 1 ? "retry" : "retries"}`,
    `${count(failed)} failed`,
    left === undefined ? undefined : `ETA ${duration(left)}`,
    note,
  ].filter((fact) => fact !== undefined);
}

function bar(share: number): string {
  const eighths = Math.floor(Math.min(1, Math.max(0, share)) * WIDTH * 8);
  const filled = "█".repeat(Math.floor(eighths / 8)) + (EIGHTHS[eighths % 8] ?? "");
  return `▕${filled.padEnd(WIDTH)}▏`;
}

export const count = (value: number): string => value.toLocaleString("en-US");

/** Two units are enough: `2h05m`, `14m20s`, `9s`. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, "0");
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  const hours = Math.floor(seconds / 3600);
  if (hours < 48) return `${hours}h${two(Math.floor((seconds % 3600) / 60))}m`;
  return `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}

const ENOUGH = 50;

/** How many per second, over the last ten seconds. */
export class Meter {
  readonly #samples: { readonly at: number; readonly done: number }[] = [];
  #counted = 0;
  #perSecond = 0;

  read(done: number, at: number): number {
    const samples = this.#samples;
    const last = samples.at(-1);
    if (last === undefined || at - last.at >= 500) samples.push({ at, done });
    while (samples.length > 2 && at - (samples[1]?.at ?? at) >= 10_000) samples.shift();
    const first = samples[0];
    this.#counted = done - (first?.done ?? done);
    this.#perSecond = first === undefined || at === first.at ? 0 : (this.#counted * 1000) / (at - first.at);
    return this.#perSecond;
  }

  /** The leak says when the last call starts, unless calls take so long that their number in flight holds up the leak. */
  correct({ done, total, left }: Pick<Progress, "done" | "total" | "left">): number | undefined {
    if (left === undefined || total === undefined || this.#counted < ENOUGH) return left;
    const asSeen = ((total - done) / this.#perSecond) * 1000;
    return asSeen > 1.25 * left + 5000 ? asSeen : left;
  }
}

const DRAW_MS = 100;
const FIRST_PLAIN_MS = 1000;
const PLAIN_MS = 10_000;
const CLEAR = "\r\x1b[2K";

/** Shows progress on stderr: a bar that is redrawn on a terminal, now and then a line elsewhere. */
export class Display {
  readonly #stream: NodeJS.WriteStream & Partial<WriteStream>;
  readonly #read: () => Progress;
  #timer: NodeJS.Timeout | undefined;
  #drawn = false;

  constructor(stream: NodeJS.WriteStream, read: () => Progress) {
    this.#stream = stream;
    this.#read = read;
    // A reader that has gone is no reason to stop sending.
    stream.on("error", () => this.stop());
  }

  start(): void {
    if (this.#stream.isTTY) {
      this.#timer = setInterval(() => this.#draw(), DRAW_MS);
      return;
    }
    const print = (): void => this.say(renderPlain(this.#read()));
    this.#timer = setTimeout(() => {
      print();
      this.#timer = setInterval(print, PLAIN_MS);
    }, FIRST_PLAIN_MS);
  }

  #draw(): void {
    this.#stream.write(`${CLEAR}${renderBar(this.#read(), this.#stream.columns ?? 80)}`);
    this.#drawn = true;
  }

  /** Takes the bar off the terminal until it is drawn again: something else is about to be written there. */
  hide(): void {
    if (this.#drawn) this.#stream.write(CLEAR);
    this.#drawn = false;
  }

  /** Prints a line above the bar. */
  say(line: string): void {
    this.hide();
    this.#stream.write(`spillway: ${line}\n`);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.hide();
  }
}
