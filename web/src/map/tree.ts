// The tree as it is used: where a key leads, what a row adds up to.
import type { Row } from "./layout";

/** A sum over a row: of one agent, or of all in a group. What nobody has is null, not 0. */
export function sumOf(row: Row, value: (agent: number) => number | null | undefined): number | null {
  let total: number | null = null;
  for (const i of row.agents) { const one = value(i); if (one !== null && one !== undefined) total = (total ?? 0) + one; }
  return total;
}

/** The row a key leads to; null when the key is not the tree's. */
export function move(key: string, rows: readonly Row[], at: number, toggle: (row: Row) => void): number | null {
  const row = rows[at];
  if (!row) return null;
  switch (key) {
    case "ArrowDown": return Math.min(rows.length - 1, at + 1);
    case "ArrowUp": return Math.max(0, at - 1);
    case "Home": return 0;
    case "End": return rows.length - 1;
    case "ArrowRight":
      if (row.hasChildren && !row.isOpen) { toggle(row); return at; }
      return rows[at + 1]?.parent === at ? at + 1 : at;
    case "ArrowLeft":
      if (row.hasChildren && row.isOpen) { toggle(row); return at; }
      return row.parent >= 0 ? row.parent : at;
    case "Enter": return at;
    default: return null;
  }
}
