/** One line of a file; `text` is undefined when the line is longer than allowed. */
export interface Line {
  /** From 1. */
  readonly number: number;
  readonly text: string | undefined;
}

/** Splits UTF-8 into lines as it comes, holding one chunk and one line. A byte order mark and CRs before LF are dropped. */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  maxLength: number = Infinity,
): AsyncGenerator<Line> {
  const decoder = new TextDecoder();
  let number = 0;
  let rest = "";
  let tooLong = false;
  const line = (text: string): Line => {
    const dropped = tooLong || text.length > maxLength;
    tooLong = false;
    return { number: ++number, text: dropped ? undefined : text.endsWith("\r") ? text.slice(0, -1) : text };
  };
  for await (const chunk of chunks) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) yield line(part);
    if (rest.length > maxLength) {
      rest = "";
      tooLong = true;
    }
  }
  rest += decoder.decode();
  if (rest !== "" || tooLong) yield line(rest);
}
