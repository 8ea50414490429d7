/** Whether every element is closed in turn, attributes are quoted and text is escaped: what XML asks of our pictures. */
export function isWellFormed(svg: string): boolean {
  const tag = /<(\/?)([a-zA-Z][\w:-]*)((?:\s+[\w:-]+="[^"<&]*")*)\s*(\/?)>/y;
  const text = /(?:[^<&]|&(?:amp|lt|gt|quot|apos|#\d+);)+/y;
  const open: string[] = [];
  let at = 0;
  let roots = 0;
  while (at < svg.length) {
    tag.lastIndex = text.lastIndex = at;
    const found = tag.exec(svg);
    if (found === null) {
      const between = text.exec(svg);
      if (between === null || (open.length === 0 && between[0].trim() !== "")) return false;
      at = text.lastIndex;
      continue;
    }
    const [, closing, name = "", , empty] = found;
    if (closing === "/") {
      if (open.pop() !== name) return false;
    } else {
      if (open.length === 0) roots++;
      if (empty !== "/") open.push(name);
    }
    at = tag.lastIndex;
  }
  return open.length === 0 && roots === 1;
}

/** How many elements of this name there are. */
export const elements = (svg: string, name: string): number => svg.split(new RegExp(`<${name}[\\s>]`)).length - 1;

/** How many strokes the panel of the starts has. */
export function countStarts(svg: string): number {
  const paths = [...svg.matchAll(/<path class="start" d="([^"]*)"/g)];
  return paths.reduce((sum, [, path = ""]) => sum + path.split("M").length - 1, 0);
}
