// Training runs: the list, and one run with its curves. Always true: every chart of a run is hovered together; an alert is marked
// where it happened and opens what raised it; samples open as traces.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart, type Mark } from "../charts/Chart";
import { Command, useLoaded, Waiting } from "../loaded";
import { onCommand } from "../keys";
import { useListKeys } from "../listkeys";
import { count, moment, plain, tenths } from "../numbers";
import { traceLink } from "../router";
import { charts, last, stepOf } from "../series";
import { Link } from "../shell/Link";
import { Empty, Failure, Steered } from "../shell/states";
import type { Level, Run as Found, RunRow } from "../shapes.gen";
import { epoch, go, route, source } from "../state";
import { Terms } from "../terms";
import { nextSort, sortedBy, sortFrom, sortText } from "../tracerows";
import "./pages.css";

export default function Runs() {
  const at = route.value;
  if (at.page !== "runs") return null;
  return at.id === null ? <List /> : <One key={at.id} id={at.id} />;
}

const KEYS = ["id", "preset", "world", "seed", "updates", "reward", "share", "written"] as const;
type Key = (typeof KEYS)[number];
const HEADS: [Key, string, boolean][] = [
  ["id", "run", false], ["preset", "preset", false], ["world", "world", false], ["seed", "seed", true], ["updates", "updates", true],
  ["reward", "reward", true], ["share", "of bound", true], ["written", "last written", false],
];
const share = (row: RunRow): number | null => (row.reward !== null && row.bound !== null && row.bound > 0 ? row.reward / row.bound : null);

function List() {
  const { data, problem } = useLoaded("runs", "", () => source.value!.runs());
  const [chosen, setChosen] = useState<string[]>([]);
  const box = useRef<HTMLDivElement>(null);
  const at = route.value;
  const sort = sortFrom<Key>(at.page === "runs" ? at.sort : "", KEYS);
  const query = at.page === "runs" ? at.query ?? "" : "";
  const rows = useMemo(() => sortedBy((data ?? []).filter((row) => matches(row, query)), sort,
    (row, key: Key) => (key === "share" ? share(row) : row[key])), [data, query, sortText(sort)]);
  const cursor = useListKeys(box, rows.length, `${query}/${sortText(sort)}`);
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Looking for runs" />;
  if (!data.length) {
    return <Empty title="No training runs in ./runs."><p>Train an orchestrator; it takes minutes on a laptop:</p>
      <Command text="counterpoint train net --help" /><p>Or watch the demo train one:</p><Command text="counterpoint demo" /></Empty>;
  }
  const pick = (id: string) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const spec = data.filter((row) => chosen.includes(row.id)).map((row) => `${row.preset ?? row.id}=${row.folder}`).join(" ");
  const ask = (change: { sort?: string; query?: string }) => { route.value = { page: "runs", id: null, sort: sortText(sort), query, ...change }; };
  const order = (key: Key) => ask({ sort: sortText(nextSort(sort, key)) });
  return (
    <div class="page">
      <header class="page-head"><h1>Runs</h1><Filter query={query} onQuery={(text) => ask({ query: text })}
        onEnter={() => { if (rows[0]) go({ page: "runs", id: rows[0].id }); }} />
        <span class="quiet" role="status">{rows.length < data.length ? `${rows.length} of ${count(data.length, "run")}` : count(data.length, "run")}</span>
        <button type="button" class={chosen.length > 1 ? "main end" : "end"} disabled={chosen.length < 2}
          onClick={() => go({ page: "compare", spec })}>Compare {chosen.length > 1 ? chosen.length : ""}</button>
      </header>
      <div class="scroll" ref={box}><table class="wide">
        <thead><tr><th scope="col"><span class="hidden">pick</span></th>
          {HEADS.map(([key, text, isNumber]) => (
            <th key={key} scope="col" class={isNumber ? "number" : ""} aria-sort={sort?.key !== key ? "none" : sort.down ? "descending" : "ascending"}>
              <button type="button" class="crumb" onClick={() => order(key)}>{text}{sort?.key === key ? (sort.down ? " ↓" : " ↑") : ""}</button></th>
          ))}
          <th scope="col">state</th></tr></thead>
        <tbody>{!rows.length && <tr><td colSpan={HEADS.length + 2} class="quiet">No run has these words.</td></tr>}{rows.map((row, i) => <Row key={row.id} row={row} index={i} isAt={i === cursor.at} isPicked={chosen.includes(row.id)}
          onPick={() => pick(row.id)} />)}</tbody>
      </table></div>
      <Terms of={["preset", "world", "seed", "update", "reward", "held out", "of bound", "bound"]} />
    </div>
  );
}

/** Whether a run has every word in its id, preset, world or state. */
function matches(row: RunRow, query: string): boolean {
  const said = [row.id, row.preset, row.world, row.seed === null ? "" : `seed ${row.seed}`, row.is_live ? "live" : "ended"].join(" ").toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

function Filter(props: { query: string; onQuery: (text: string) => void; onEnter: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => onCommand("search", () => field.current?.focus()), []);
  return (
    <input ref={field} type="search" class="search filter" value={props.query} aria-label="Search runs" placeholder="/ words: a preset, a world, live"
      onInput={(event) => props.onQuery(event.currentTarget.value)}
      onKeyDown={(event) => { if (event.key === "Enter") props.onEnter(); if (event.key === "Escape") event.currentTarget.blur(); }} />
  );
}

function Row(props: { row: RunRow; index: number; isAt: boolean; isPicked: boolean; onPick: () => void }) {
  const { row } = props;
  return (
    <tr class={[props.isPicked && "is-selected", props.isAt && "is-at"].filter(Boolean).join(" ")} data-row={props.index}>
      <td><input type="checkbox" checked={props.isPicked} aria-label={`Pick ${row.id} to compare`} onChange={props.onPick} /></td>
      <td><Link to={{ page: "runs", id: row.id }}><bdi>{row.id}</bdi></Link></td>
      <td><bdi>{row.preset ?? "–"}</bdi></td><td><bdi>{row.world ?? "–"}</bdi></td>
      <td class="number">{row.seed ?? "–"}</td><td class="number">{row.updates.toLocaleString("en")}</td>
      <td class="number">{plain(row.reward, 4)}</td><td class="number">{tenths(share(row))}</td>
      <td title={`${moment(row.written)} UTC`}>{moment(row.written)}</td>
      <td>{row.is_live ? <span class="badge">● live</span> : <span class="quiet">ended</span>}
        {row.is_steered && <> <Steered /></>}</td>
    </tr>
  );
}

const AGAIN_MS = 5000;

function One(props: { id: string }) {
  const { data, problem } = useLoaded(`run/${props.id}`, "", () => source.value!.run(props.id));
  const isLive = data?.row.is_live ?? false;
  useEffect(() => {
    if (!isLive) return;
    const timer = setInterval(() => { if (!document.hidden) epoch.value += 1; }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [isLive]);
  if (!data && problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Reading the run" />;
  return <Shown run={data} />;
}

function Shown(props: { run: Found }) {
  const { row, series, alerts, samples, levels } = props.run;
  const groups = useMemo(() => charts(series), [series]);
  const [hidden, setHidden] = useState<string[]>([]);
  const marks = useMemo<Mark[]>(() => alerts.flatMap((alert) => {
    const step = stepOf(alert.text);
    return step === null ? [] : [{ x: step, text: alert.kind }];
  }), [alerts]);
  const most = Math.max(0, ...series.map((one) => last(one)?.x ?? 0));
  return (
    <div class="page">
      <header class="page-head">
        <h1><bdi>{row.id}</bdi></h1>
        {row.is_live && <span class="badge">● live</span>}
        {row.is_steered && <Steered />}
        <span class="quiet">{row.preset} in {row.world}
          {row.seed !== null && `, seed ${row.seed}`} · {count(row.updates, "update")}{most > 0 && ` · step ${most}`}
            {row.reward !== null && ` · reward ${plain(row.reward, 4)}`}
            {share(row) !== null && ` · ${tenths(share(row))} of the bound`} · {moment(row.written)} UTC</span>
        <span class="end"><Link to={{ page: "runs", id: null }}>All runs</Link></span>
      </header>
      {alerts.length > 0 && <ul class="alerts" aria-label="Alerts">{alerts.map((alert, i) => (
        <li key={i} class={alert.severity === "high" ? "notice bad" : "notice"}>
          <strong>⚠ {alert.kind}</strong> <bdi>{alert.text}</bdi></li>
      ))}</ul>}
      <div class="chips page-chips" role="group" aria-label="Charts">
        {groups.map((group) => (
          <button key={group.title} type="button" class="chip" aria-pressed={!hidden.includes(group.title)}
            onClick={() =>
              setHidden(hidden.includes(group.title) ? hidden.filter((one) => one !== group.title) : [...hidden, group.title])}>
                {group.title.replaceAll("_", " ")}</button>
        ))}
      </div>
      {!groups.length && <p class="nothing">No numbers yet.</p>}
      <div class="charts">
        {groups.filter((group) => !hidden.includes(group.title)).map((group, i) => (
          <Chart key={group.title} title={group.title} xLabel="update" series={group.series} group={`run/${row.id}`}
            marks={i ? NO_MARKS : marks} levels={group.title === "reward" ? levels : NO_LEVELS} />
        ))}
      </div>
      <Samples ids={samples} />
      <Terms of={["update", "reward", "in training", "held out", "bound", "hand-made policies", "alert", "samples"]}
        charts={groups.map((group) => group.title)} />
    </div>
  );
}

const NO_MARKS: Mark[] = [];
const NO_LEVELS: Level[] = [];

function Samples(props: { ids: string[] }) {
  if (!props.ids.length) return <p class="quiet page-note">No sampled traces were kept for this run.</p>;
  return (
    <section class="page-note" aria-label="Samples">
      <h2>Samples</h2>
      <ul class="chips">{props.ids.map((id) => <li key={id}><Link to={traceLink(id)} class="sample"><bdi>{id}</bdi></Link></li>)}
        </ul>
    </section>
  );
}
