/** Pictures as SVG, readable on light and dark: one page, panels above one axis of time. */

export const WIDTH = 960;
export const LEFT = 92;
export const RIGHT = 28;

const STYLE = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a; }
  .title { font-size: 18px; font-weight: 600; fill: #1f2328; }
  .panel { font-weight: 600; fill: #1f2328; }
  .paper { fill: #ffffff; stroke: #d0d7de; }
  .grid { stroke: #d8dee4; }
  .axis { stroke: #8c959f; }
  .accepted { fill: #2f81c9; }
  .dropped { fill: #e5793a; }
  .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 6 4; fill: none; }
  text.bound { fill: #cf222e; }
  .depth { fill: #8250df; fill-opacity: 0.22; stroke: #8250df; stroke-width: 1.5; stroke-linejoin: round; }
  .rate { fill: #1a7f5a; fill-opacity: 0.2; stroke: #1a7f5a; stroke-width: 1.5; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1; }
    .title, .panel { fill: #f0f6fc; }
    .paper { fill: #0d1117; stroke: #3d444d; }
    .grid { stroke: #262c36; }
    .axis { stroke: #656c76; }
    .accepted { fill: #4493f8; }
    .dropped { fill: #f0883e; }
    .limit { stroke: #f85149; }
    text.bound { fill: #f85149; }
    .depth { fill: #ab7df8; stroke: #ab7df8; }
    .rate { fill: #3fb984; stroke: #3fb984; }
  }`;

/** A diagram on the page. */
export interface Panel {
  readonly top: number;
  readonly height: number;
  /** The value at its upper edge. */
  readonly most: number;
  /** The distance of its lines. */
  readonly step: number;
  readonly title: string;
  readonly unit: string;
}

/** A value that holds from a time on; times are as the scale has them that is passed with them. */
export interface Point {
  readonly at: number;
  readonly value: number;
}

type Scale = (at: number) => number;

/** The whole picture; `style` is CSS beside that of all pictures. */
export function page(parts: {
  readonly title: string;
  readonly description: string;
  readonly height: number;
  readonly body: string;
  readonly style?: string;
}): string {
  const { title, description, height, body, style = "" } = parts;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-labelledby="title what">
<title id="title">${escapeText(title)}</title>
<desc id="what">${escapeText(description)}</desc>
<style>${STYLE}${style}
</style>
<rect class="paper" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>
<text class="title" x="24" y="36">${escapeText(title)}</text>
${body}
</svg>
`;
}

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

export const escapeText = (text: string): string => text.replace(/[&<>"]/g, (sign) => ENTITIES[sign] ?? sign);

export const px = (value: number): string => String(Math.round(value * 100) / 100);

/** Ends an axis at `most`, and gives it two to five lines. */
export function scale(most: number): Pick<Panel, "most" | "step"> {
  const size = 10 ** Math.floor(Math.log10(most / 4.5));
  const step = [1, 2, 2.5, 5].map((digit) => digit * size).find((one) => most / one <= 4.5) ?? 10 * size;
  return { most, step };
}

const y = ({ top, height, most }: Panel, value: number): number => top + height * (1 - value / most);

export const heading = ({ top, title, unit }: Pick<Panel, "top" | "title" | "unit">): string =>
  `<text x="24" y="${top - 16}"><tspan class="panel">${escapeText(title)}</tspan> <tspan>(${escapeText(unit)})</tspan></text>`;

/** The heading and the lines of a panel. */
export function frame(panel: Panel): string {
  const lines = [];
  for (let i = 0; i * panel.step <= panel.most; i++) {
    const value = i * panel.step;
    const at = px(y(panel, value));
    lines.push(
      `<line class="${i === 0 ? "axis" : "grid"}" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at}" y2="${at}"/>`,
      `<text x="${LEFT - 8}" y="${at}" dy="0.35em" text-anchor="end">${px(value)}</text>`,
    );
  }
  return [heading(panel), ...lines].join("\n");
}

/** A line that is not to be crossed. */
export function bound(panel: Panel, value: number, label: string): string {
  const at = y(panel, value);
  return (
    `<path class="limit" d="M${LEFT} ${px(at)}H${WIDTH - RIGHT}"/>\n` +
    `<text class="bound" x="${WIDTH - RIGHT - 4}" y="${px(at - 6)}" text-anchor="end">${escapeText(label)}</text>`
  );
}

/** A bar from one value to another. */
export function bar(
  name: string,
  panel: Panel,
  [left, right]: readonly [number, number],
  values: readonly [number, number],
): string {
  const [from, to] = values;
  if (to <= from) return "";
  const [bottom, top] = [y(panel, from), y(panel, to)];
  return `<rect class="${name}" x="${px(left)}" width="${px(right - left)}" y="${px(top)}" height="${px(bottom - top)}"/>`;
}

/** The area below a line through all points. */
export function area(name: string, panel: Panel, points: readonly Point[], x: Scale): string {
  const [first] = points;
  if (first === undefined) return "";
  const line = points.map(({ at, value }) => `${px(x(at))} ${px(y(panel, value))}`);
  const floor = px(y(panel, 0));
  return `<path class="${name}" d="M${px(x(first.at))} ${floor}L${line.join("L")}V${floor}Z"/>`;
}

/** @param label names a time. */
export function timeAxis(
  bottom: number,
  times: readonly number[],
  x: Scale,
  label: (at: number) => string | number,
  unit: string,
): string {
  const ticks = times.map((time) => {
    const at = px(x(time));
    return (
      `<line class="axis" x1="${at}" x2="${at}" y1="${bottom}" y2="${bottom + 5}"/>\n` +
      `<text x="${at}" y="${bottom + 21}" text-anchor="middle">${label(time)}</text>`
    );
  });
  return [
    `<line class="axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${bottom}" y2="${bottom}"/>`,
    ...ticks,
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${bottom + 46}" text-anchor="middle">${escapeText(unit)}</text>`,
  ].join("\n");
}

/** Squares with what their colour means, one after the other from `left` on. */
export function legend(
  entries: readonly { readonly name: string; readonly text: string; readonly width: number }[],
  left: number,
): string {
  let at = left;
  return entries
    .map(({ name, text, width }) => {
      const drawn = `<rect class="${name}" x="${at}" y="62" width="12" height="12" rx="2"/><text x="${at + 18}" y="73">${escapeText(text)}</text>`;
      at += width;
      return drawn;
    })
    .join("\n");
}
