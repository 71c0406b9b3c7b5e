// The list of traces. Always true: the query in the field is the whole filter, facets only write into it; two picked rows lead to
// their difference; an empty list says how to fill it.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { onCommand } from "../keys";
import { asProblem, Command, useLoaded, Waiting } from "../loaded";
import { compact, count, moment, money, plain, span } from "../numbers";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Empty, Failure, Steered } from "../shell/states";
import { say } from "../shell/toast";
import type { TraceRow, Traces as Found } from "../shapes.gen";
import type { SourceError } from "../source";
import { go, route, source } from "../state";
import { hasTerm, nextSort, picked, type Sort, sorted, type SortKey, sortFrom, sortText, term, toggled } from "../tracerows";
import { Windowed } from "../windowed";
import { openFile } from "./openfile";
import "./pages.css";

/** While the first query is one that cannot be read: the field must stay, so that it can be mended. */
const NONE: Found = { store: "the store", rows: [], total: 0, facets: {}, version: "" };

const sort = signal<Sort | null>(sortFrom(null));
const chosen = signal<string[]>([]);
/** Whether ids stand in place of titles. */
const withIds = signal(false);

export default function Traces() {
  const query = route.value.page === "traces" ? route.value.query : "";
  const { data, problem } = useLoaded(source.value!.kind, query, () => source.value!.traces(query));
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
        <div class="notice" role="alert"><p>{dropProblem.what}</p>{dropProblem.fix && <Command text={dropProblem.fix} />}
        <button type="button" onClick={() => setDropProblem(null)}>Close</button></div>}
      {!data && problem
        ? (query ? <List found={NONE} query={query} problem={problem} onFile={open} /> : <Failure error={problem} />)
        : !data ? <Waiting what="Reading the store" />
        : !data.total && !query ? <Nothing store={data.store} onFile={open} />
          : <List found={data} query={query} problem={problem} onFile={open} />}
    </div>
  );
}

function Nothing(props: { store: string; onFile: (file: File | undefined) => void }) {
  return (
    <Empty title={`No traces in ${props.store}.`}>
      <p class="chips"><OpenFile onFile={props.onFile} /></p>
      <p>Look at six sample teams, offline, in seconds:</p>
      <Command text="counterpoint demo --quick" />
      <p>Or bring your own:</p>
      <p><Command
        text="counterpoint import --last 7d" /> <span class="quiet">this user's Claude Code, Codex and Kimi sessions</span></p>
      <p><Command
        text="counterpoint import FILE" /> <span
          class="quiet">a file or folder: OpenTelemetry, Inspect, verifiers and more, found by content</span></p>
      <p><Command text="counterpoint serve" /> <span class="quiet">receives what running programs send over OTLP</span></p>
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

function List(props: { found: Found; query: string; problem: SourceError | null; onFile: (file: File | undefined) => void }) {
  const { found, query } = props;
  const rows = useMemo(() => sorted(found.rows, sort.value), [found, sort.value]);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => onCommand("search", () => field.current?.focus()), []);
  const ask = (text: string) => { route.value = { page: "traces", query: text }; };
  const two = chosen.value;
  return (
    <>
      <header class="page-head">
        <input ref={field} type="search" class="search" value={query}
          placeholder='words, or project:shop errors>0 cost>5 date>7d open' aria-label="Search traces"
          onInput={(event) => ask(event.currentTarget.value)} />
        <span class="quiet" role="status">
          {found === NONE ? ""
            : rows.length === found.total ? count(found.total, "trace")
            : `${rows.length.toLocaleString("en")} of ${count(found.total, "trace")}`}
          {found !== NONE && <>{" in "}<bdi>{found.store}</bdi></>}</span>
        <span class="end chips">
          {two.length > 0 && <span class="quiet">{two.length === 1 ? "pick one more to compare" : "two picked"}</span>}
          <button type="button" class={two.length === 2 ? "main" : ""} disabled={two.length !== 2}
            onClick={() => go({ page: "diff", a: two[0]!, b: two[1]! })}>Diff</button>
          {two.length > 0 && <button type="button" onClick={() => (chosen.value = [])}>Clear</button>}
          <button type="button" aria-pressed={withIds.value} onClick={() => (withIds.value = !withIds.value)}>Show ids</button>
          <OpenFile onFile={props.onFile} />
        </span>
      </header>
      {props.problem &&
        <p class="notice" role="alert">{props.problem.what} {props.problem.fix && <span class="quiet">{props.problem.fix}</span>}
          </p>}
      <div class="traces-body">
        <Facets facets={found.facets} query={query} onQuery={ask} />
        {props.problem && !rows.length ? <span /> : rows.length ? <Table rows={rows} query={query} /> : (
          <Empty title="No trace matches."><p><code>{query}</code></p>
            <button type="button" onClick={() => ask("")}>Show all</button></Empty>
        )}
      </div>
    </>
  );
}

function Facets(props: { facets: Record<string, Record<string, number>>; query: string; onQuery: (query: string) => void }) {
  const flags: [string, string][] = [["failed", "something failed"], ["open", "still running"], ["finished", "finished"],
    ["invalid", "records with problems"], ["steered", "steered"]];
  const words = props.query.split(/\s+/);
  return (
    <aside class="facets" aria-label="Facets">
      {Object.entries(props.facets).filter(([, values]) => Object.keys(values).length > 0).map(([field, values]) => (
        <section key={field}>
          <h2>{field}</h2>
          <ul>
            {inOrder(field, values).slice(0, 12).map(([value, many]) => (
              <li key={value}>
                <button type="button" class="facet" aria-pressed={hasTerm(props.query, term(field, value))}
                  onClick={() => props.onQuery(toggled(props.query, field, value))}>
                  <bdi>{field === "model" ? shortModel(value) : value || "none"}</bdi> <span class="quiet">{many.toLocaleString("en")}</span>
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
    </aside>
  );
}

/** The days newest first, the other facets by how many traces have them. */
function inOrder(field: string, values: Record<string, number>): [string, number][] {
  const all = Object.entries(values);
  return field === "day" ? all.sort((a, b) => b[0].localeCompare(a[0])) : all.sort((a, b) => b[1] - a[1]);
}

/** A model's name without its provider and the date of its version. */
function shortModel(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1).replace(/-20\d\d-?\d\d-?\d\d(?=$|[-:@v])/, "") || name;
}

const COLUMNS: [SortKey | null, string, string][] = [
  [null, "pick", "1.5rem"], ["title", "title", "minmax(12rem, 4fr)"], ["project", "project", "minmax(5rem, 1fr)"],
    ["model", "model", "minmax(6rem, 1fr)"],
  ["date", "date", "8.6rem"], ["reward", "reward", "3.8rem"], ["agents", "agents", "3.6rem"], ["tokens", "tokens", "4rem"],
    ["cost_usd", "cost", "4.6rem"],
  ["seconds", "time", "3.8rem"], ["errors", "errors", "4.2rem"], [null, "busy", "5rem"],
];
const GRID = COLUMNS.map(([, , width]) => width).join(" ");
const NUMBERS: readonly string[] = ["reward", "agents", "tokens", "cost", "time", "errors"];

function Table(props: { rows: TraceRow[]; query: string }) {
  return (
    <div class="grid-table" role="table" aria-label="Traces" aria-rowcount={props.rows.length + 1} aria-colcount={COLUMNS.length}>
      <div role="rowgroup">
        <div class="grid-row grid-head" role="row" style={{ gridTemplateColumns: GRID }}>
          {COLUMNS.map(([key, text]) => <Head key={text} sortKey={key} text={text} />)}
        </div>
      </div>
      <Windowed isTable label="Traces" listKey={`${props.query}/${sortText(sort.value)}`} count={props.rows.length} estimate={34}
        render={(i) => <Row row={props.rows[i]!} index={i} />} />
    </div>
  );
}

function Head(props: { sortKey: SortKey | null; text: string }) {
  const { sortKey, text } = props;
  if (!sortKey) return <span role="columnheader">{text === "pick" ? <span class="hidden">pick</span> : text}</span>;
  const now = sort.value?.key === sortKey ? sort.value : null;
  return (
    <span role="columnheader" aria-sort={now ? (now.down ? "descending" : "ascending") : "none"}
      class={NUMBERS.includes(text) ? "number" : ""}>
      <button type="button" class="crumb" onClick={() => (sort.value = nextSort(sort.value, sortKey))}>{text}
        {now ? (now.down ? " ↓" : " ↑") : ""}</button>
    </span>
  );
}

function Row(props: { row: TraceRow; index: number }) {
  const { row } = props;
  const isPicked = chosen.value.includes(row.id);
  return (
    <div class={isPicked ? "grid-row is-selected" : "grid-row"} role="row" aria-rowindex={props.index + 2}
      style={{ gridTemplateColumns: GRID }}>
      <span role="cell">
        <input type="checkbox" checked={isPicked} aria-label={`Pick ${row.id} to compare`}
          onChange={() => (chosen.value = picked(chosen.value, row.id))} /></span>
      <span role="cell"><Link to={traceLink(row.id)} title={row.title ? `${row.title} (${row.id})` : row.id}>
        <bdi>{withIds.value ? row.id : row.title ?? row.id}</bdi></Link>
        {row.is_steered && <> <Steered /></>}
        {withIds.value && <span class="quiet"> <bdi>{[row.title, row.system, row.topology?.replaceAll("_", " ")].filter(Boolean)
          .join(", ")}</bdi></span>}</span>
      <span role="cell"><bdi>{row.project ?? ""}</bdi></span>
      <span role="cell" title={row.models.join(", ")}><bdi>{row.models.length ? shortModel(row.models[0]!) : ""}</bdi>
        {row.models.length > 1 && <span class="quiet"> +{row.models.length - 1}</span>}</span>
      <span role="cell">{row.date ? moment(row.date) : ""}</span>
      <span role="cell" class="number">{plain(row.reward)}</span>
      <span role="cell" class="number" title={row.events === null ? "" : count(row.events, "event")}>{compact(row.agents)}</span>
      <span role="cell" class="number">{compact(row.tokens)}</span>
      <span role="cell" class="number"
        title={row.unpriced > 0 ? `${compact(row.unpriced)} tokens without a price are not in it` : ""}>
        {money(row.cost_usd)}{row.unpriced > 0 && row.cost_usd !== null ? "+" : ""}</span>
      <span role="cell" class="number">{span(row.seconds)}</span>
      <span role="cell" class="number">
        {row.errors > 0 && <span class="badge warn" title={count(row.errors, "error")}>⚠ {row.errors}</span>}
        {row.is_open && <span class="badge" title="it has not ended">● live</span>}</span>
      <span role="cell"><Busy lanes={row.lanes} /></span>
    </div>
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
