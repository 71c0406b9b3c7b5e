// What happened in a range of time. Always true: an event belongs to a range if any of it lies there; a sum with gaps says so.
import { FLAGS } from "../shapes.gen";
import type { Columns } from "../source";

export interface Totals {
  events: number;
  agents: number;
  tokens: number;
  cost: number;
  /** Some events have no known cost: the sum is a least. */
  isLeast: boolean;
  failed: number;
  tainted: number;
  /** Null without a credit method. */
  credit: number | null;
}

/** `credit` is by row of the columns. */
export function totalsOf(columns: Columns, from: number, to: number, credit: Float32Array | null): Totals {
  const none = { events: 0, agents: 0, tokens: 0, cost: 0, isLeast: false, failed: 0, tainted: 0 };
  const out: Totals = { ...none, credit: credit ? 0 : null };
  const agents = new Set<number>();
  for (let i = 0; i < columns.n; i++) {
    const t = columns.t[i]!;
    if (t > to) break;
    const flags = columns.flags[i]!;
    if (!(flags & FLAGS.open) && t + (columns.dur[i]! || 0) < from) continue;
    out.events++;
    agents.add(columns.agent[i]!);
    out.tokens += columns.tokens[i]!;
    if (Number.isNaN(columns.cost[i]!)) out.isLeast ||= columns.tokens[i]! > 0;
    else out.cost += columns.cost[i]!;
    if (flags & FLAGS.failed) out.failed++;
    if (flags & FLAGS.tainted) out.tainted++;
    if (credit && !Number.isNaN(credit[i]!)) out.credit! += credit[i]!;
  }
  out.agents = agents.size;
  return out;
}
