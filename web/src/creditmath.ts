// The arithmetic of the credit view. Always true: a sum is added up here again, from what is on the screen, and held against the
// reward it must make; credit that a method did not give is absent, never zero.
import type { Credit, CreditRow } from "./shapes.gen";

/** How far a sum may be off by rounding alone. */
const SLACK = 1e-6;

export interface Closing {
  /** `none`: nothing to add up; `own`: not additive, the method's own total; `closes`, `broken`: additive. */
  state: "none" | "own" | "closes" | "broken";
  sum: number | null;
  /** Of the sum: what agents got, and what nobody got. */
  agents: number;
  nobody: number;
  target: number | null;
  difference: number;
}

/** Do the agents and what nobody got make the team's reward? */
export function closing(credit: Credit): Closing {
  const parts = Object.values(credit.by_agent);
  if (credit.refusal
    || (!parts.length && credit.total === null)) return { state: "none", sum: null, agents: 0, nobody: 0, target: null,
    difference: 0 };
  const agents = parts.length ? add(parts) : credit.total ?? 0;
  const nobody = credit.unassigned ?? 0;
  const [sum, target] = [add([agents, nobody]), credit.target];
  if (!credit.is_additive || target === null) return { state: "own", sum, agents, nobody, target, difference: 0 };
  const difference = sum - target;
  const fits = Math.abs(difference) <= SLACK * Math.max(1, Math.abs(target));
  return { state: fits && credit.closes !== false ? "closes" : "broken", sum, agents, nobody, target, difference };
}

/** Compensated, so that the order of thousands of small values does not show. */
export function add(values: number[]): number {
  let sum = 0;
  let lost = 0;
  for (const value of values) {
    const next = sum + value;
    lost += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum;
    sum = next;
  }
  return sum + lost;
}

/** One scale for everything side by side: the largest size, rounded up to two digits that end in 0 or 5. */
export function sharedScale(credits: Credit[]): number {
  let most = 0;
  for (const credit of credits) {
    for (const value of Object.values(credit.by_agent)) most = Math.max(most, Math.abs(value));
    for (const row of credit.rows) most = Math.max(most, Math.abs(row.value));
    most = Math.max(most, Math.abs(credit.unassigned ?? 0));
  }
  if (!most) return 1;
  const step = 5 * 10 ** (Math.floor(Math.log10(most)) - 1);
  return Number((Math.ceil(most / step - 1e-9) * step).toPrecision(6));
}

/** Agents with their credit, the largest size first. */
export function bySize(credit: Credit): [string, number][] {
  return Object.entries(credit.by_agent).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]) || a[0].localeCompare(b[0]));
}

export interface Part {
  label: string;
  value: number;
  /** From and to, as shares of the bar's width. */
  from: number;
  to: number;
}

/**
 * The parts of the bar: what adds to the reward on the right of the zero, what takes from it on the left, the largest outermost.
 */
export function barParts(credit: Credit): { parts: Part[]; zero: number } {
  const all = bySize(credit).filter(([, value]) => value !== 0);
  if (credit.unassigned) all.push(["unassigned", credit.unassigned]);
  const below = add(all.map(([, value]) => Math.max(0, -value)));
  const above = add(all.map(([, value]) => Math.max(0, value)));
  const whole = below + above || 1;
  const zero = below / whole;
  let [left, right] = [zero, zero];
  const parts = all.map(([label, value]) => {
    const size = Math.abs(value) / whole;
    if (value < 0) return { label, value, to: left, from: (left -= size) };
    return { label, value, from: right, to: (right += size) };
  });
  return { parts, zero };
}

export interface Disagreement {
  label: string;
  event: number;
  agent: number;
  a: number;
  b: number;
}

/** Where two methods are furthest apart, of the things that both gave credit; and how many only one of them did. */
export function disagreements(a: Credit, b: Credit, most = 5): { at: Disagreement[]; onlyOne: number } {
  const others = new Map(b.rows.map((row) => [rowKey(row), row]));
  const found: Disagreement[] = [];
  let alone = 0;
  for (const row of a.rows) {
    const other = others.get(rowKey(row));
    if (!other) alone++;
    else found.push({ label: row.label, event: row.event, agent: row.agent, a: row.value, b: other.value });
  }
  const onlyOne = alone + b.rows.length - found.length;
  found.sort((x, y) => Math.abs(y.a - y.b) - Math.abs(x.a - x.b) || x.event - y.event);
  return { at: found.filter((d) => Math.abs(d.a - d.b) > SLACK).slice(0, most), onlyOne };
}

/** The same thing in two methods: an event by its number and label (an event has many tokens), anything else by name. */
function rowKey(row: CreditRow): string {
  return `${row.event}/${row.agent}/${row.label}`;
}

/** Rows of a token view, in order, one list for each event. */
export function tokensByEvent(rows: CreditRow[]): { event: number; agent: number; rows: CreditRow[] }[] {
  const out: { event: number; agent: number; rows: CreditRow[] }[] = [];
  for (const row of rows) {
    const last = out.at(-1);
    if (last && last.event === row.event) last.rows.push(row);
    else out.push({ event: row.event, agent: row.agent, rows: [row] });
  }
  return out;
}

/** From fine to coarse; a unit nobody knows comes last. */
const FINENESS = ["token", "event", "message", "tool", "orchestrator", "turn", "agent", "role", "team"];

/** The unit to show when a method does not have the wanted one: the nearest, the coarser of two. Null: it has none. */
export function nearestUnit(wanted: string, units: string[]): string | null {
  const place = (unit: string) => (FINENESS.indexOf(unit) + FINENESS.length + 1) % (FINENESS.length + 1);
  const at = place(wanted);
  const away = (unit: string) => Math.abs(place(unit) - at) - (place(unit) > at ? 0.5 : 0);
  return [...units].sort((a, b) => away(a) - away(b))[0] ?? null;
}
