// Markdown and JSON of a trace as a tree of plain values. Always true: it only cuts text into pieces and never makes markup: HTML
// stays text, an address is never a link; the time it takes grows with the text's length, whatever the text is.

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "em" | "del"; inside: Inline[] }
  | { kind: "link"; inside: Inline[]; address: string };

export type Block =
  | { kind: "paragraph"; inside: Inline[] }
  | { kind: "heading"; level: number; inside: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; isOrdered: boolean; first: number; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const DEEPEST = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+.#-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^( *)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const DIVIDER = /^[ |:-]*-[ |:-]*$/;

/** Whether a text has anything that reads better set than as it is. */
export function isMarkdown(text: string): boolean {
  const lines = text.split("\n", 400);
  return lines.some((line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || (line.includes("|") && DIVIDER.test(line)))
    || /\*\*[^*\n]+\*\*|`[^`\n]+`|\]\([^)\s]+\)/.test(text.slice(0, 20_000));
}

export function blocks(text: string, depth = 0): Block[] {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const out: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    const line = lines[i]!;
    const [block, next] = special(lines, i, depth) ?? paragraph(lines, i, depth);
    if (block && (block.kind !== "paragraph" || line.trim())) out.push(block);
    i = Math.max(next, i + 1);
  }
  return out;
}

/** Whether anything but a paragraph begins at a line. */
function begins(lines: string[], i: number, depth: number): boolean {
  const line = lines[i]!;
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth < DEEPEST && (/^ {0,3}>/.test(line) || ITEM.test(line))) return true;
  return line.includes("|") && i + 1 < lines.length && lines[i + 1]!.includes("|") && DIVIDER.test(lines[i + 1]!);
}

/** What begins at a line, if it is anything but a paragraph, and the line after it. */
function special(lines: string[], i: number, depth: number): [Block | null, number] | null {
  const line = lines[i]!;
  if (!line.trim()) return [null, i + 1];
  if (!begins(lines, i, depth)) return null;
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, i, fence[1]!, fence[2]!);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1]!.length, inside: inline(heading[2]!) }, i + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, i + 1];
  if (depth < DEEPEST && /^ {0,3}>/.test(line)) return quoted(lines, i, depth);
  return depth < DEEPEST && ITEM.test(line) ? listed(lines, i, depth) : table(lines, i);
}

function fenced(lines: string[], i: number, mark: string, language: string): [Block, number] {
  let end = i + 1;
  while (end < lines.length && !lines[end]!.trimStart().startsWith(mark)) end++;
  return [{ kind: "code", language, text: lines.slice(i + 1, end).join("\n") }, end + 1];
}

function quoted(lines: string[], i: number, depth: number): [Block, number] {
  let end = i;
  while (end < lines.length && /^ {0,3}>/.test(lines[end]!)) end++;
  const inner = lines.slice(i, end).map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n");
  return [{ kind: "quote", blocks: blocks(inner, depth + 1) }, end];
}

/** A list: items at one indentation; what is indented further belongs to the item above it. */
function listed(lines: string[], i: number, depth: number): [Block, number] {
  const first = ITEM.exec(lines[i]!)!;
  const [indent, isOrdered] = [first[1]!.length, first[3] !== undefined];
  const items: string[][] = [];
  let at = i;
  for (; at < lines.length; at++) {
    const line = lines[at]!;
    const item = ITEM.exec(line);
    const inset = line.length - line.trimStart().length;
    if (item && item[1]!.length <= indent + 1 && (item[3] !== undefined) === isOrdered && inset >= indent) items.push([item[4]!]);
    else if (line.trim() && inset > indent) items.at(-1)!.push(line.slice(Math.min(inset, indent + 2)));
    else if (!line.trim() && at + 1 < lines.length && continues(lines[at + 1]!, indent)) items.at(-1)!.push("");
    else break;
  }
  const told = items.map((item) => blocks(item.join("\n"), depth + 1));
  return [{ kind: "list", isOrdered, first: Number(first[3] ?? 1), items: told }, at];
}

const continues = (line: string, indent: number): boolean =>
  line.trim() !== "" && (line.length - line.trimStart().length > indent || (ITEM.exec(line)?.[1]?.length ?? -1) === indent);

function table(lines: string[], i: number): [Block, number] {
  const cells = (line: string): Inline[][] => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  let end = i + 2;
  while (end < lines.length && lines[end]!.includes("|") && lines[end]!.trim()) end++;
  return [{ kind: "table", head: cells(lines[i]!), rows: lines.slice(i + 2, end).map(cells) }, end];
}

function paragraph(lines: string[], i: number, depth: number): [Block, number] {
  let end = i + 1;
  while (end < lines.length && lines[end]!.trim() && !begins(lines, end, depth)) end++;
  return [{ kind: "paragraph", inside: inline(lines.slice(i, end).join("\n")) }, end];
}

const LONGEST_MARK = 2_000;

/** Marks inside a line. What a mark does not close is text. */
export function inline(text: string, depth = 0): Inline[] {
  const out: Inline[] = [];
  let plain = "";
  const flush = (): void => { if (plain) out.push({ kind: "text", text: plain }); plain = ""; };
  let i = 0;
  while (i < text.length) {
    const found = depth < DEEPEST ? marked(text, i, depth) : null;
    if (!found) { plain += text[i]; i++; continue; }
    flush();
    out.push(found[0]);
    i = found[1];
  }
  flush();
  return out;
}

/** The mark that begins here, and where it is over. */
function marked(text: string, i: number, depth: number): [Inline, number] | null {
  const here = text[i];
  if (here === "`") {
    const [mark] = /^`+/.exec(text.slice(i, i + 8))!;
    const end = closing(text, mark, i + mark.length);
    return end < 0 ? null : [{ kind: "code", text: text.slice(i + mark.length, end) }, end + mark.length];
  }
  if (here === "[") return linked(text, i, depth);
  for (const [mark, kind] of MARKS) {
    if (!text.startsWith(mark, i) || /\s/.test(text[i + mark.length] ?? " ")) continue;
    // an underscore inside a word is part of a name
    if (mark[0] === "_" && /\w/.test(text[i - 1] ?? "")) return null;
    const end = closing(text, mark, i + mark.length);
    if (end < 0 || /\s/.test(text[end - 1]!) || (mark[0] === "_" && /\w/.test(text[end + mark.length] ?? ""))) continue;
    return [{ kind, inside: inline(text.slice(i + mark.length, end), depth + 1) }, end + mark.length];
  }
  return null;
}

const MARKS: [string, "strong" | "em" | "del"][] = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

/** Where a mark closes, within reach: a text of nothing but marks must not be searched to its end for each of them. */
function closing(text: string, mark: string, from: number): number {
  const reach = text.slice(from, from + LONGEST_MARK);
  const end = reach.indexOf(mark);
  return end <= 0 ? -1 : from + end;
}

function linked(text: string, i: number, depth: number): [Inline, number] | null {
  const reach = text.slice(i, i + LONGEST_MARK);
  const middle = reach.indexOf("](");
  if (middle < 1) return null;
  const end = reach.indexOf(")", middle);
  const address = end < 0 ? "" : reach.slice(middle + 2, end);
  if (!address || /\s/.test(address) || reach.slice(0, middle).includes("\n\n")) return null;
  return [{ kind: "link", inside: inline(reach.slice(1, middle), depth + 1), address }, i + end + 1];
}

/** A text that is one JSON object or array, parsed; undefined where it is not. */
export function asJson(text: string): unknown {
  const trimmed = text.trim();
  if (!/^[{[]/.test(trimmed) || !/[}\]]$/.test(trimmed)) return undefined;
  try { return JSON.parse(trimmed) as unknown; } catch { return undefined; }
}
