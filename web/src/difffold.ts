// Two traces side by side, made short. Always true: every row of the difference is in exactly one item, in order; a fold says how
// many rows it holds.
import type { DiffRow } from "./shapes.gen";

export type DiffItem = { kind: "row"; row: number } | { kind: "fold"; what: string; from: number; to: number };

/**
 * Rows to show. Equal stretches fold to what is within `near` rows of a change; long one-sided stretches fold after `near` rows.
 */
export function folded(rows: DiffRow[], onlyChanges: boolean, near = 1, opened: ReadonlySet<number> = new Set()): DiffItem[] {
  const out: DiffItem[] = [];
  for (let from = 0; from < rows.length; ) {
    const to = stretchEnd(rows, from);
    const what = rows[from]!.what;
    const isSame = what === "same";
    const canFold = isSame ? onlyChanges : what === "only-a" || what === "only-b";
    const before = isSame && from === 0 ? 0 : near;
    const after = isSame && to < rows.length ? near : 0;
    if (!canFold || opened.has(from + before) || to - from <= before + after + 2) push(out, from, to);
    else {
      push(out, from, from + before);
      out.push({ kind: "fold", what, from: from + before, to: to - after });
      push(out, to - after, to);
    }
    from = to;
  }
  return out;
}

function stretchEnd(rows: DiffRow[], from: number): number {
  let to = from + 1;
  while (to < rows.length && rows[to]!.what === rows[from]!.what) to++;
  return to;
}

function push(out: DiffItem[], from: number, to: number): void {
  for (let row = from; row < to; row++) out.push({ kind: "row", row });
}

/** Agents of a folded stretch, the busiest first. */
export function agentsOf(rows: DiffRow[], from: number, to: number): [string, number][] {
  const counts = new Map<string, number>();
  for (let row = from; row < to; row++) counts.set(rows[row]!.agent, (counts.get(rows[row]!.agent) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

export interface Edit {
  head: string;
  removed: string;
  added: string;
  tail: string;
}

const KEPT = 40;

/** What changed between two texts, by words: the beginning and end they share, shortened, and what stands between. */
export function edit(before: string, after: string): Edit {
  const a = before.split(/(\s+)/);
  const b = after.split(/(\s+)/);
  let start = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const head = a.slice(0, start).join("");
  const tail = a.slice(a.length - end).join("");
  return {
    head: head.length > KEPT ? `…${head.slice(-KEPT)}` : head,
    removed: a.slice(start, a.length - end).join(""),
    added: b.slice(start, b.length - end).join(""),
    tail: tail.length > KEPT ? `${tail.slice(0, KEPT)}…` : tail,
  };
}

/** The row to go to from `row`: the next (or previous) one that begins a stretch of difference; -1 when there is none. */
export function nextChange(rows: DiffRow[], row: number, step: 1 | -1): number {
  for (let at = row + step; at >= 0 && at < rows.length; at += step) {
    if (rows[at]!.what !== "same" && (at === 0 || rows[at - 1]!.what !== rows[at]!.what)) return at;
  }
  return -1;
}
