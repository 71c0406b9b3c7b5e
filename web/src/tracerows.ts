// The list of traces: sorting, and facets as terms of the search language. Always true: absent values sort last, whichever way; a
// facet is a term of the query and nothing else, so the address holds the whole state.
import type { TraceRow } from "./shapes.gen";

const KEYS = ["title", "id", "project", "model", "date", "system", "topology", "reward", "agents", "events", "tokens", "cost_usd",
  "seconds", "errors"] as const;
export type SortKey = (typeof KEYS)[number];
const NAMES: readonly string[] = ["title", "id", "project", "model", "system", "topology"];

/** What a row is sorted by in a column. */
function valueOf(row: TraceRow, key: SortKey): string | number | null {
  if (key === "title") return row.title ?? row.task_id;
  if (key === "model") return row.models[0] ?? null;
  return row[key];
}

export interface Sort {
  key: SortKey;
  down: boolean;
}

export function sorted(rows: TraceRow[], sort: Sort | null): TraceRow[] {
  if (!sort) return rows;
  const { key, down } = sort;
  return [...rows].sort((a, b) => {
    const x = valueOf(a, key);
    const y = valueOf(b, key);
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const order = typeof x === "string" ? x.localeCompare(y as string) : x - (y as number);
    return down ? -order : order;
  });
}

/**
 * The next way to sort when a column's head is pressed: large first for numbers, a-z for names, then the other way, then none.
 */
export function nextSort(sort: Sort | null, key: SortKey): Sort | null {
  const first = !NAMES.includes(key);
  if (sort?.key !== key) return { key, down: first };
  return sort.down === first ? { key, down: !first } : null;
}

/** `system -reward` and back, for the address. */
export function sortText(sort: Sort | null): string {
  return sort ? (sort.down ? "-" : "") + sort.key : "";
}

export function sortFrom(text: string | null | undefined): Sort | null {
  if (!text) return null;
  const down = text.startsWith("-");
  const key = down ? text.slice(1) : text;
  return (KEYS as readonly string[]).includes(key) ? { key: key as SortKey, down } : null;
}

/** The terms of a query: quotes keep words together, as in a shell. */
export function terms(query: string): string[] {
  return query.match(/(?:"(?:\\.|[^"])*"?|'[^']*'?|[^\s"'])+/g) ?? [];
}

/** A term for a field's value, quoted where it must be. */
export function term(field: string, value: string): string {
  return `${field}:${/^[\w./@+-]+$/.test(value) ? value : `"${value.replace(/(["\\])/g, "\\$1")}"`}`;
}

export function hasTerm(query: string, wanted: string): boolean {
  return terms(query).includes(wanted);
}

/** With the term, or without it where it was there; another value of the same field makes room (terms are joined by and). */
export function toggled(query: string, field: string, value: string): string {
  const wanted = term(field, value);
  const others = terms(query).filter((one) => !one.startsWith(`${field}:`));
  return (hasTerm(query, wanted) ? others : [...others, wanted]).join(" ");
}

/** Two picked rows at most: a third takes the place of the older one. */
export function picked(now: readonly string[], id: string): string[] {
  return now.includes(id) ? now.filter((one) => one !== id) : [...now.slice(-1), id];
}
