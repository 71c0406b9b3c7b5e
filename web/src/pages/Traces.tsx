// The list of traces. Always true: the query in the field is the whole filter, facets only write into it; two picked rows lead to
// their difference; an empty list says how to fill it.
import { signal } from "@preact/signals";
import type { RefObject, VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { onCommand } from "../keys";
import { useListKeys } from "../listkeys";
import { asProblem, Command, Fix, sentence, useLoaded, Waiting } from "../loaded";
import { compact, count, localMoment, money, plain, span } from "../numbers";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Empty, Failure, Steered } from "../shell/states";
import { say } from "../shell/toast";
import type { AlertCount, TraceRow, Traces as Found } from "../shapes.gen";
import type { SourceError } from "../source";
import { go, route, source } from "../state";
import {
  alone, AS_IT_COMES, type Column, fitting, folded, hasTerm, howMany, type Line, nextSort, picked, runsTitle, type Sort, sorted, sortFrom,
  sortText, template, term, toggled,
} from "../tracerows";
import { Windowed } from "../windowed";
import { areCausesShown, Causes } from "./Causes";
import { openFile } from "./openfile";
import "./pages.css";

/** While the first query is one that cannot be read: the field must stay, so that it can be mended. */
const NONE: Found = { store: "the store", rows: [], found: 0, total: 0, facets: {}, zone: "", remarks: [], version: "" };

const chosen = signal<string[]>([]);
/** Sessions whose runs are shown one by one. */
const unfolded = signal<readonly string[]>([]);

/** What the address says: the order of the list, and whether ids stand in place of titles. */
const sortNow = (): Sort | null => (route.value.page === "traces" ? sortFrom(route.value.sort) : null);
const withIds = (): boolean => route.value.page === "traces" && route.value.ids === true;

/** Another query or order, in the address too; a typed letter makes no step of the back button. */
function ask(change: { query?: string; sort?: string; ids?: boolean }): void {
  const at = route.value;
  if (at.page === "traces") route.value = { ...at, ...change };
}

export default function Traces() {
  const query = route.value.page === "traces" ? route.value.query : "";
  const { data: answer, problem } = useLoaded(source.value!.kind, query,
    async () => ({ query, found: await source.value!.traces(query) }));
  const data = answer?.found;
  const [dropProblem, setDropProblem] = useState<SourceError | null>(null);
  const open = (file: File | undefined) => {
    if (!file) return;
    setDropProblem(null);
    openFile(file).then((name) => say(`${name} is open. Reload the page to go back to the store.`),
      (error: unknown) => setDropProblem(asProblem(error)));
  };
  const [isOver, setOver] = useState(false);
  return (
    <div class={isOver ? "traces is-over" : "traces"} onDragOver={(event) => { event.preventDefault(); setOver(true); }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); open(event.dataTransfer?.files[0]); }}>
      <h1 class="hidden">Traces</h1>
      {dropProblem &&
        <div class="notice" role="alert"><p>{sentence(dropProblem.what)}</p>{dropProblem.fix && <Fix text={dropProblem.fix} />}
        <button type="button" onClick={() => setDropProblem(null)}>Close</button></div>}
      {!data && problem
        ? (query ? <List found={NONE} of={null} query={query} problem={problem} onFile={open} /> : <Failure error={problem} />)
        : !data ? <Waiting what="Reading the store" />
        : !data.total && !query ? <Nothing store={data.store} onFile={open} />
          : <List found={data} of={answer!.query} query={query} problem={problem} onFile={open} />}
    </div>
  );
}

function Nothing(props: { store: string; onFile: (file: File | undefined) => void }) {
  return (
    <Empty title={`No traces yet in the store “${props.store}”.`}>
      <p class="chips"><OpenFile onFile={props.onFile} /></p>
      <p>Bring your own:</p>
      <p><Command
        text="counterpoint import --last 7d" /> <span class="quiet">this user's Claude Code, Codex and Kimi sessions</span></p>
      <p><Command
        text="counterpoint import FILE" /> <span
          class="quiet">a file or folder: OpenTelemetry, Inspect, verifiers and more, found by content</span></p>
      <p><Command text="counterpoint serve" /> <span class="quiet">receives what running programs send over OTLP</span></p>
      <p>Or write sample teams into a store, offline, in seconds:</p>
      <Command text="counterpoint demo --quick" />
    </Empty>
  );
}

function OpenFile(props: { onFile: (file: File | undefined) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" onClick={() => input.current?.click()}>Open file…</button>
      <input ref={input} type="file" hidden aria-label="A page that counterpoint exported" accept=".html,.htm,.json,.jsonl"
        onChange={(event) => props.onFile(event.currentTarget.files?.[0])} />
    </>
  );
}

interface ListProps {
  found: Found; query: string; problem: SourceError | null; onFile: (file: File | undefined) => void;
  /** The query that the rows answer: while a new one is looked for, the old rows stay. */
  of: string | null;
}

/** What Enter in the field does: opens the first trace that the query finds, once it is found. */
function useOpenFirst(rows: readonly TraceRow[], { of, query }: ListProps): () => void {
  const [wanted, setWanted] = useState<string | null>(null);
  useEffect(() => {
    if (wanted === null || (wanted === query && of !== query)) return;
    setWanted(null);
    if (wanted === query && rows[0]) go(traceLink(rows[0].id));
  }, [wanted, query, of, rows]);
  return () => setWanted(query);
}

function List(props: ListProps) {
  const { found, query } = props;
  const order = sortText(sortNow());
  const byAlerts = sortNow()?.key === "alerts";
  const counts = byAlerts ? alerts.value : null;
  const rows = useMemo(() => sorted(found.rows, sortNow(), (id) => counts?.[id]?.count ?? null), [found, order, counts]);
  const uncounted = counts ? rows.filter((row) => !(row.id in counts)).length : 0;
  useEffect(() => { if (byAlerts) wantAlerts(found.rows); }, [found, byAlerts]);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => onCommand("search", () => field.current?.focus()), []);
  const openFirst = useOpenFirst(rows, props);
  const two = chosen.value;
  return (
    <>
      <header class="page-head">
        <input ref={field} type="search" class="search" value={query}
          placeholder='words, or project:shop errors>0 cost>5 since:7d open' aria-label="Search traces"
          onInput={(event) => ask({ query: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key === "Enter") openFirst();
            if (event.key === "Escape") event.currentTarget.blur();
          }} />
        <span class="quiet" role="status">
          {found === NONE ? "" : howMany(found)}
          {found !== NONE && <>{" in "}<bdi>{found.store}</bdi></>}
          {uncounted > 0 && `, alerts of ${uncounted.toLocaleString("en")} not yet counted`}</span>
        <span class="end chips">
          {two.length > 0 && <span class="quiet">{two.length === 1 ? "pick one more to compare" : "two picked"}</span>}
          <button type="button" class={two.length === 2 ? "main" : ""} disabled={two.length !== 2}
            onClick={() => go({ page: "diff", a: two[0]!, b: two[1]! })}>Diff</button>
          {two.length > 0 && <button type="button" onClick={() => (chosen.value = [])}>Clear</button>}
          {source.value!.kind === "server" && (
            <button type="button" aria-pressed={areCausesShown.value} onClick={() => (areCausesShown.value = !areCausesShown.value)}>
              Why they failed</button>
          )}
          <button type="button" aria-pressed={withIds()} onClick={() => ask({ ids: !withIds() })}>Show ids</button>
          <OpenFile onFile={props.onFile} />
        </span>
      </header>
      {props.problem &&
        <p class="notice" role="alert">{sentence(props.problem.what)} {props.problem.fix && <span class="quiet"><Fix text={props.problem.fix} /></span>}
          </p>}
      {found.remarks.map((one) => <p key={one} class="notice">{one}.</p>)}
      {areCausesShown.value && <Causes query={query} />}
      <div class="traces-body">
        <Facets key={found.store} facets={found.facets} zone={found.zone} query={query} onQuery={(text) => ask({ query: text })} />
        {props.problem && !rows.length ? <span /> : rows.length ? <Table rows={rows} query={query} /> : (
          <Empty title="No trace matches."><p><code>{query}</code></p>
            <button type="button" onClick={() => ask({ query: "" })}>Show all</button></Empty>
        )}
      </div>
    </>
  );
}

function Facets(props: { facets: Record<string, Record<string, number>>; zone: string; query: string; onQuery: (query: string) => void }) {
  const flags: [string, string][] = [["failed", "something failed"], ["open", "running or stuck"], ["finished", "finished"],
    ["invalid", "records with problems"], ["steered", "steered"]];
  const words = props.query.split(/\s+/);
  return (
    <aside class="facets" aria-label="Filters"><details open={isWide()}>
      <summary>Filters</summary>
      {Object.entries(props.facets).filter(([, values]) => Object.keys(values).length > 0).map(([field, values]) => (
        <section key={field}>
          <h2>{field}{field === "day" && props.zone ? ` (${props.zone})` : ""}</h2>
          <ul>
            {inOrder(field, values).slice(0, 12).map(([value, many]) => (
              <li key={value}>
                <button type="button" class="facet" aria-pressed={hasTerm(props.query, term(field, value))}
                  onClick={() => props.onQuery(toggled(props.query, field, value))}>
                  <bdi>{field === "model" ? modelName(value, Object.keys(values)) : value || "none"}</bdi> <span class="quiet">{many.toLocaleString("en")}</span>
                </button>
              </li>
            ))}
          </ul>
        </section>
      ))}
      <section>
        <h2>state</h2>
        <ul>
          {flags.map(([word, text]) => (
            <li key={word}>
              <button type="button" class="facet" aria-pressed={words.includes(word)}
                onClick={() =>
                  props.onQuery(words.includes(word) ? words.filter((one) => one !== word).join(" ")
                    : `${props.query} ${word}`.trim())}>{text}</button>
            </li>
          ))}
        </ul>
      </section>
    </details></aside>
  );
}

/** Whether the filters have a place of their own beside the list, as in pages.css. */
const isWide = (): boolean => matchMedia("(min-width: 56rem)").matches;

/** The days newest first, the other facets by how many traces have them. */
function inOrder(field: string, values: Record<string, number>): [string, number][] {
  const all = Object.entries(values);
  return field === "day" ? all.sort((a, b) => b[0].localeCompare(a[0])) : all.sort((a, b) => b[1] - a[1]);
}

/** A model's short name, or the whole one where another model has the same. */
function modelName(name: string, all: readonly string[]): string {
  const short = shortModel(name);
  return all.filter((other) => shortModel(other) === short).length > 1 ? name : short;
}

/** A model's name without its provider and the date of its version. */
function shortModel(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1).replace(/-20\d\d-?\d\d-?\d\d(?=$|[-:@v])/, "") || name;
}

/** Whether no trace says anything in a column. */
function isEmpty(rows: readonly TraceRow[], column: Column): boolean {
  switch (column.text) {
    case "project": return !rows.some((row) => row.project);
    case "model": return !rows.some((row) => row.models.length);
    case "reward": return !rows.some((row) => row.reward !== null);
    case "cost": return !rows.some((row) => row.cost_usd !== null);
    case "busy": return !rows.some((row) => row.lanes.length);
    default: return false;
  }
}

/** The width of an element in rem; 0 before it is known. */
function useWidth(box: RefObject<HTMLElement>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(box.current!.clientWidth / parseFloat(getComputedStyle(document.documentElement).fontSize));
    const sizes = new ResizeObserver(measure);
    sizes.observe(box.current!);
    measure();
    return () => sizes.disconnect();
  }, []);
  return width;
}

function Table(props: { rows: TraceRow[]; query: string }) {
  const isFolded = !withIds() && !/(^|\s)parent[:=!]/.test(props.query);
  const open = unfolded.value;
  const lines = useMemo((): Line[] => (isFolded ? folded(props.rows, (key) => open.includes(key)) : props.rows.map(alone)),
    [props.rows, isFolded, open]);
  const rows = useMemo(() => lines.map((line) => line.row), [lines]);
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const columns = useMemo(() => fitting(width || 60, (column) => isEmpty(rows, column)), [width, rows]);
  const listKey = `${props.query}/${sortText(sortNow())}`;
  const cursor = useListKeys(box, rows.length, listKey);
  return (
    <div ref={box} class="grid-table" role="table" aria-label="Traces" aria-rowcount={rows.length + 1} aria-colcount={columns.length}
      style={{ "--columns": template(columns) }}>
      <div role="rowgroup">
        <div class="grid-row grid-head" role="row">{columns.map((column) => <Head key={column.text} column={column} />)}</div>
      </div>
      <Windowed isTable label="Traces" listKey={listKey} count={rows.length} estimate={34} show={cursor.show}
        onRange={(from, to) => wantAlerts(lines.slice(from, to).filter((line) => !line.runs.length).map((line) => line.row))}
        render={(i) => <Row line={lines[i]!} index={i} columns={columns} isAt={i === cursor.at} />} />
    </div>
  );
}

/** How many alerts traces have, by id; null where the server does not count them unasked. */
const alerts = signal<Record<string, AlertCount | null>>({});
const WAIT_MS = 120;
const TOGETHER = 20;
let wanted: string[] = [];
let timer = 0;

/** Asks for the alerts of the rows on the screen, once they have been there for a moment. */
function wantAlerts(rows: readonly TraceRow[]): void {
  const missing = rows.map((row) => row.id).filter((id) => !(id in alerts.peek()));
  // sorted by alerts, all are counted, those on the screen first
  wanted = sortNow()?.key === "alerts" ? [...new Set([...missing, ...wanted])] : missing;
  clearTimeout(timer);
  if (wanted.length) timer = window.setTimeout(() => void askAlerts(), WAIT_MS);
}

async function askAlerts(): Promise<void> {
  const from = source.peek();
  while (wanted.length && from === source.peek()) {
    const ids = wanted.slice(0, TOGETHER);
    wanted = wanted.slice(TOGETHER);
    const found = await from!.alerts(ids).catch(() => null);
    if (!found) return;
    alerts.value = { ...alerts.value, ...Object.fromEntries(ids.map((id) => [id, found[id] ?? null])) };
  }
}

function Head(props: { column: Column }) {
  const { sort: key, text, isNumber } = props.column;
  if (!key) return <span role="columnheader" class={isNumber ? "number" : ""}>{text === "pick" ? <span class="hidden">pick</span> : text}</span>;
  const by = sortNow() ?? AS_IT_COMES;
  const now = by.key === key ? by : null;
  return (
    <span role="columnheader" aria-sort={now ? (now.down ? "descending" : "ascending") : "none"} class={isNumber ? "number" : ""}>
      <button type="button" class="crumb" onClick={() => ask({ sort: sortText(nextSort(by, key)) })}>{text}
        {now ? (now.down ? " ↓" : " ↑") : ""}</button>
    </span>
  );
}

function Row(props: { line: Line; index: number; columns: readonly Column[]; isAt: boolean }) {
  const { line } = props;
  const { row } = line;
  const isPicked = !line.runs.length && chosen.value.includes(row.id);
  const classes = ["grid-row", isPicked && "is-selected", props.isAt && "is-at"].filter(Boolean).join(" ");
  return (
    <div class={classes} role="row" aria-rowindex={props.index + 2} aria-current={props.isAt ? "true" : undefined}>
      {props.columns.map((column) => (line.runs.length ? runsCell(line, column.text) : line.isRun && column.text === "title"
        ? runCell(row) : CELLS[column.text]!(row)))}
    </div>
  );
}

/** A cell of a line that stands for the runs of a session. */
function runsCell(line: Line, column: string): VNode {
  if (column === "pick" || column === "alerts" || column === "busy") return <span role="cell" />;
  if (column !== "title") return CELLS[column]!(line.row);
  const isOpen = unfolded.value.includes(line.key);
  return (
    <span role="cell" class={line.isBelow ? "run" : ""}><button type="button" class="crumb" aria-expanded={isOpen}
      title="Runs that the session made for itself, such as reviews of its calls"
      onClick={() => (unfolded.value = isOpen ? unfolded.value.filter((one) => one !== line.key) : [...unfolded.value, line.key])}>
      {isOpen ? "▾" : "▸"} <bdi>{runsTitle(line)}</bdi></button></span>
  );
}

/** The title of one of them: they are all called alike, so that their id says which it is. */
function runCell(row: TraceRow): VNode {
  return (
    <span role="cell" class="run"><Link to={traceLink(row.id)} title={row.title ? `${row.title} (${row.id})` : row.id}>
      <bdi>{row.id}</bdi></Link></span>
  );
}

/** The cell of each column. */
const CELLS: Record<string, (row: TraceRow) => VNode> = {
  pick: (row) => (
    <span role="cell"><input type="checkbox" checked={chosen.value.includes(row.id)} aria-label={`Pick ${row.id} to compare`}
      onChange={() => (chosen.value = picked(chosen.value, row.id))} /></span>
  ),
  title: (row) => (
    <span role="cell">{row.waits && <><Waits row={row} /> </>}<Link to={traceLink(row.id)} title={row.title ? `${row.title} (${row.id})` : row.id}>
      <bdi>{withIds() ? row.id : row.title ?? row.id}</bdi></Link>
      {row.is_steered && <> <Steered /></>}
      {row.is_open && <> <span class="badge" title="It is still running.">● live</span></>}
      {withIds() && <span class="quiet"> <bdi>{[row.title, row.system, row.topology?.replaceAll("_", " ")].filter(Boolean)
        .join(", ")}</bdi></span>}</span>
  ),
  project: (row) => <span role="cell"><bdi>{row.project ?? ""}</bdi></span>,
  model: (row) => (
    <span role="cell" title={row.models.join(", ")}><bdi>{row.models.length ? shortModel(row.models[0]!) : ""}</bdi>
      {row.models.length > 1 && <span class="quiet"> +{row.models.length - 1}</span>}</span>
  ),
  active: (row) => (
    <span role="cell" title={row.date ? `began ${localMoment(row.date)}, last at work ${localMoment(row.active)} (your time zone)` : ""}>
      {row.active ? localMoment(row.active) : ""}</span>
  ),
  reward: (row) => <span role="cell" class="number">{plain(row.reward)}</span>,
  agents: (row) => <span role="cell" class="number" title={row.events === null ? "" : count(row.events, "event")}>{compact(row.agents)}</span>,
  tokens: (row) => <span role="cell" class="number">{compact(row.tokens)}</span>,
  cost: (row) => (
    <span role="cell" class="number" title={row.unpriced > 0 ? `${compact(row.unpriced)} tokens have no price and are not in it` : ""}>
      {money(row.cost_usd)}{row.unpriced > 0 && row.cost_usd !== null ? "+" : ""}</span>
  ),
  time: (row) => <span role="cell" class="number">{span(row.seconds)}</span>,
  errors: (row) => (
    <span role="cell" class="number">{row.errors > 0 && <span class="badge warn" title={count(row.errors, "error")}>✕ {compact(row.errors)}</span>}</span>
  ),
  alerts: (row) => {
    const found = alerts.value[row.id];
    return (
      <span role="cell" class="number">{found && found.count > 0 && <span class={found.severity === "high" ? "badge bad" : "badge warn"}
        title={`${count(found.count, "alert")}; the most severe (${found.severity}): ${found.text}`}>⚠ {found.count}</span>}</span>
    );
  },
  busy: (row) => <span role="cell"><Busy lanes={row.lanes} /></span>,
};

/** A call without an answer that a record ends in, and for how long. */
function Waits({ row }: { row: TraceRow }) {
  const since = row.since === null ? "" : ` since ${localMoment(row.since)}`;
  return (
    <span class="badge warn" title={`${row.waits}: without an answer${since}. It is at work, stuck, or was interrupted.`}>
      open{row.since === null ? "" : ` ${span(Math.max(0, Math.round(Date.now() / 1000 - row.since)))}`}</span>
  );
}

/** A tiny picture: how many agents were busy, slice by slice. */
function Busy(props: { lanes: number[] }) {
  if (!props.lanes.length) return null;
  const most = Math.max(...props.lanes, 1e-9);
  return (
    <svg class="busy" viewBox={`0 0 ${props.lanes.length} 10`} preserveAspectRatio="none" role="img"
      aria-label="Agents busy over time">
      {props.lanes.map((share, i) =>
        <rect key={i} x={i} width="0.85" y={10 - (10 * share) / most} height={(10 * share) / most} />)}
    </svg>
  );
}
