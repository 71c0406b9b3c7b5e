// Where the nodes of the drawn tree lie. Always true: a column for each depth, rows top to bottom as in the tree beside it, a
// parent in the middle of its children; the area of a node is its share of the tokens.
import type { Row } from "./layout";

export interface Node { row: number; x: number; y: number; r: number }

const LEAST_R = 4;
const MOST_R = 17;

/** Nodes in units of rows (y) and depths (x); `weights` are tokens by row. */
export function place(rows: readonly Row[], weights: readonly number[]): Node[] {
  const most = Math.max(1, ...weights);
  const children = new Map<number, number[]>();
  rows.forEach((row, r) => { if (row.parent >= 0) children.set(row.parent, [...(children.get(row.parent) ?? []), r]); });
  const nodes = rows.map((row,
    r): Node => ({ row: r, x: row.depth, y: 0, r: Math.max(LEAST_R, MOST_R * Math.sqrt((weights[r] ?? 0) / most)) }));
  let leaf = 0;
  rows.forEach((_, r) => { if (!children.has(r)) nodes[r]!.y = leaf++; });
  for (let r = rows.length - 1; r >= 0; r--) {
    const below = children.get(r);
    if (below) nodes[r]!.y = (nodes[below[0]!]!.y + nodes[below.at(-1)!]!.y) / 2;
  }
  return nodes;
}
