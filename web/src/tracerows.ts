// The lists of traces and runs: sorting, columns, runs under their session, and facets as terms of the search language. Always true:
// absent values sort last, whichever way; a facet is a term of the query and nothing else, so the address holds the whole state; the
// title never leaves; every row is in one line, the runs of a session below it or in one that says that it is not here.
import { count } from "./numbers";
import type { TraceRow, Traces } from "./shapes.gen";

const KEYS = ["title", "id", "project", "model", "date", "active", "system", "topology", "reward", "agents", "events", "tokens", "cost_usd",
  "seconds", "errors", "alerts"] as const;
export type SortKey = (typeof KEYS)[number];
const NAMES: readonly string[] = ["title", "id", "project", "model", "system", "topology", "preset", "world"];

/** What a row is sorted by in a column. */
function valueOf(row: TraceRow, key: Exclude<SortKey, "alerts">): string | number | null {
  if (key === "title") return row.title ?? row.task_id;
  if (key === "model") return row.models[0] ?? null;
  return row[key];
}

export interface Sort<Key extends string = SortKey> {
  key: Key;
  down: boolean;
}

/** `alerts` says how many a trace has, by its id; null where they are not counted. */
export function sorted(rows: TraceRow[], sort: Sort | null, alerts: (id: string) => number | null = () => null): TraceRow[] {
  return sortedBy(rows, sort, (row, key: SortKey) => (key === "alerts" ? alerts(row.id) : valueOf(row, key)));
}

export function sortedBy<Row, Key extends string>(
  rows: Row[], sort: Sort<Key> | null, of: (row: Row, key: Key) => string | number | null,
): Row[] {
  if (!sort) return rows;
  const { key, down } = sort;
  return [...rows].sort((a, b) => {
    const x = of(a, key);
    const y = of(b, key);
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const order = typeof x === "string" ? x.localeCompare(y as string) : x - (y as number);
    return down ? -order : order;
  });
}

/**
 * The next way to sort when a column's head is pressed: large first for numbers, a-z for names, then the other way, then none.
 */
export function nextSort<Key extends string>(sort: Sort<Key> | null, key: Key): Sort<Key> | null {
  const first = !NAMES.includes(key);
  if (sort?.key !== key) return { key, down: first };
  return sort.down === first ? { key, down: !first } : null;
}

/** How the list comes from the server. */
export const AS_IT_COMES: Sort = { key: "active", down: true };

/** A line of the list: a trace, or the head of the runs of a session, which are shown when it is open. */
export interface Line { row: TraceRow; runs: TraceRow[]; isBelow: boolean; isRun: boolean; key: string }

/** Sessions, each with the runs that it made for itself in one line; those that are open, one by one. */
export function folded(rows: readonly TraceRow[], isOpen: (key: string) => boolean): Line[] {
  const here = new Map(rows.map((row) => [row.id, row]));
  const isRun = (row: TraceRow): boolean => !!row.parent && row.parent !== row.id;
  // runs of a kind whose sessions are not here are one line, however many sessions that is
  const keyOf = (row: TraceRow): string => {
    const session = here.get(row.parent!);
    return session && !isRun(session) ? row.parent! : `gone ${row.project ?? ""} ${row.models.join(" ")}`;
  };
  const runs = new Map<string, TraceRow[]>();
  for (const row of rows) if (isRun(row)) runs.set(keyOf(row), [...runs.get(keyOf(row)) ?? [], row]);
  const below = (key: string, isBelow: boolean): Line[] => {
    const mine = runs.get(key)!;
    const head = { row: together(mine), runs: mine, isBelow, isRun: false, key };
    return [head, ...(isOpen(key) ? mine.map((row) => ({ row, runs: [], isBelow, isRun: true, key })) : [])];
  };
  const told = new Set<string>();
  return rows.flatMap((row): Line[] => {
    const key = isRun(row) ? keyOf(row) : row.id;
    if (!runs.has(key)) return [alone(row)];
    if (told.has(key)) return [];
    told.add(key);
    const session = here.get(key);
    return [...(session ? [alone(session)] : []), ...below(key, session !== undefined)];
  });
}

/** A trace as a line of its own. */
export function alone(row: TraceRow): Line {
  return { row, runs: [], isBelow: false, isRun: false, key: row.id };
}

/** Several runs as one row: the last of them, with the sums of all. */
function together(runs: readonly TraceRow[]): TraceRow {
  const last = runs.reduce((a, b) => ((b.active ?? 0) > (a.active ?? 0) ? b : a));
  const sum = (of: (row: TraceRow) => number | null): number | null =>
    runs.reduce<number | null>((total, row) => (of(row) === null ? total : (total ?? 0) + of(row)!), null);
  return {
    ...last, agents: sum((row) => row.agents), events: sum((row) => row.events), tokens: sum((row) => row.tokens),
    cost_usd: sum((row) => row.cost_usd), seconds: sum((row) => row.seconds), errors: sum((row) => row.errors) ?? 0,
    unpriced: sum((row) => row.unpriced) ?? 0, reward: null, lanes: [],
  };
}

/** What a line of several runs is called. */
export function runsTitle({ runs, isBelow }: Line): string {
  const models = new Set(runs.flatMap((run) => run.models));
  const kind = models.size === 1 ? `${[...models][0]} run` : "run";
  const sessions = [...new Set(runs.map((run) => run.parent ?? ""))];
  const whose = sessions.length === 1 ? `, session ${sessions[0]!.slice(0, 8)} is` : ` of ${count(sessions.length, "session")} that are`;
  return count(runs.length, kind) + (isBelow ? " of it" : `${whose} not here`);
}

/** `system -reward` and back, for the address. */
export function sortText<Key extends string>(sort: Sort<Key> | null): string {
  return sort ? (sort.down ? "-" : "") + sort.key : "";
}

export function sortFrom<Key extends string = SortKey>(
  text: string | null | undefined, keys: readonly Key[] = KEYS as readonly string[] as readonly Key[],
): Sort<Key> | null {
  if (!text) return null;
  const down = text.startsWith("-");
  const key = down ? text.slice(1) : text;
  return (keys as readonly string[]).includes(key) ? { key: key as Key, down } : null;
}

/** A column of the list. `leaves` says in which order columns make room on a narrow screen, 0 for never. */
export interface Column {
  text: string;
  sort: SortKey | null;
  /** Least width in rem. */
  rem: number;
  leaves: number;
  /** How many shares it has in what is left over. */
  grows?: number;
  isNumber?: boolean;
  /** The filters say it too: it is shown where the title has room beside it. */
  isSpare?: boolean;
}

export const COLUMNS: readonly Column[] = [
  { text: "pick", sort: null, rem: 1.5, leaves: 0 },
  { text: "title", sort: "title", rem: 13.2, leaves: 0, grows: 4 },
  { text: "project", sort: "project", rem: 5, leaves: 2, grows: 1, isSpare: true },
  { text: "model", sort: "model", rem: 6, leaves: 1, grows: 1, isSpare: true },
  { text: "active", sort: "active", rem: 8, leaves: 9 },
  { text: "reward", sort: "reward", rem: 3.8, leaves: 7, isNumber: true },
  { text: "agents", sort: "agents", rem: 3.7, leaves: 4, isNumber: true },
  { text: "tokens", sort: "tokens", rem: 3.8, leaves: 6, isNumber: true },
  { text: "cost", sort: "cost_usd", rem: 4.2, leaves: 8, isNumber: true },
  { text: "time", sort: "seconds", rem: 3.8, leaves: 5, isNumber: true },
  { text: "errors", sort: "errors", rem: 5, leaves: 10, isNumber: true },
  { text: "alerts", sort: "alerts", rem: 3.6, leaves: 11, isNumber: true },
  { text: "busy", sort: null, rem: 4.5, leaves: 3 },
];
const GAP_REM = 0.5;
const EDGES_REM = 2.5;
/** How much wider than at the least a title is before columns that can be spared are shown. */
const COMFORT_REM = 4;

/** The columns that have room in a list of this width; those that say nothing about any trace make room first. */
export function fitting(rem: number, isEmpty: (column: Column) => boolean = () => false): Column[] {
  let shown = COLUMNS.filter((one) => !one.leaves || !isEmpty(one));
  const width = (): number => shown.reduce((sum, one) => sum + one.rem + GAP_REM, EDGES_REM);
  for (;;) {
    const next = shown.filter((one) => one.leaves).sort((a, b) => a.leaves - b.leaves)[0];
    if (!next || width() + (next.isSpare ? COMFORT_REM : 0) <= rem) break;
    shown = shown.filter((one) => one !== next);
  }
  return shown;
}

/** `grid-template-columns` of some columns. */
export function template(columns: readonly Column[]): string {
  return columns.map((one) => (one.grows ? `minmax(${one.rem}rem, ${one.grows}fr)` : `${one.rem}rem`)).join(" ");
}

/** The terms of a query: quotes keep words together, as in a shell. */
export function terms(query: string): string[] {
  return query.match(/(?:"[^"]*"?|'[^']*'?|[^\s"'])+/g) ?? [];
}

/** A term for exactly this value of a field, quoted where it must be. */
export function term(field: string, value: string): string {
  const quote = value.includes('"') ? "'" : '"';
  return `${field}=${/^[\w./@+-]+$/.test(value) ? value : quote + value + quote}`;
}

export function hasTerm(query: string, wanted: string): boolean {
  return terms(query).includes(wanted);
}

/** With the term, or without it where it was there; another value of the same field makes room (terms are joined by and). */
export function toggled(query: string, field: string, value: string): string {
  const wanted = term(field, value);
  const others = terms(query).filter((one) => !one.startsWith(`${field}:`) && !one.startsWith(`${field}=`));
  return (hasTerm(query, wanted) ? others : [...others, wanted]).join(" ");
}

/** How many traces there are, how many of them match, and how many of those are in the list. */
export function howMany({ rows, found, total }: Traces): string {
  const some = found === total ? count(total, "trace") : `${found.toLocaleString("en")} of ${count(total, "trace")}`;
  return rows.length < found ? `${some}, the newest ${rows.length.toLocaleString("en")} shown` : some;
}

/** Two picked rows at most: a third takes the place of the older one. */
export function picked(now: readonly string[], id: string): string[] {
  return now.includes(id) ? now.filter((one) => one !== id) : [...now.slice(-1), id];
}
