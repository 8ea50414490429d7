// @ts-check
// Tables that read well in a terminal and in Markdown.

/** @typedef {string | number | undefined} Cell */

/** Three significant digits; whole numbers from 100 on. @param {Cell} cell */
export function show(cell) {
  if (cell === undefined) return "–";
  if (typeof cell === "string") return cell;
  if (Number.isNaN(cell)) return "–";
  if (Number.isInteger(cell)) return `${cell}`;
  const size = Math.abs(cell);
  return cell.toFixed(size >= 100 ? 1 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** @param {readonly string[]} head @param {readonly (readonly Cell[])[]} rows */
export function table(head, rows) {
  const texts = [head, ...rows.map((row) => row.map(show))];
  const widths = head.map((_, column) => Math.max(3, ...texts.map((row) => (row[column] ?? "").length)));
  const numeric = head.map((_, column) => column > 0 && rows.some((row) => typeof row[column] === "number"));
  const line = (/** @type {readonly string[]} */ row) =>
    `| ${row.map((text, i) => (numeric[i] ? text.padStart(widths[i] ?? 0) : text.padEnd(widths[i] ?? 0))).join(" | ")} |`;
  const rule = `|${widths.map((width, i) => (numeric[i] ? `${"-".repeat(width + 1)}:` : "-".repeat(width + 2))).join("|")}|`;
  const [first = [], ...others] = texts;
  return [line(first), rule, ...others.map(line)].join("\n");
}
