// Training runs: the list, and one run with its curves. Always true: every chart of a run is hovered together; an alert is marked
// where it happened and opens what raised it; samples open as traces.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Chart, type Mark } from "../charts/Chart";
import { Command, useLoaded, Waiting } from "../loaded";
import { count, plain } from "../numbers";
import { traceLink } from "../router";
import { charts, last, stepOf } from "../series";
import { Link } from "../shell/Link";
import { Empty, Failure, Steered } from "../shell/states";
import type { Run as Found, RunRow } from "../shapes.gen";
import { epoch, go, route, source } from "../state";
import "./pages.css";

export default function Runs() {
  const at = route.value;
  if (at.page !== "runs") return null;
  return at.id === null ? <List /> : <One key={at.id} id={at.id} />;
}

function List() {
  const { data, problem } = useLoaded("runs", "", () => source.value!.runs());
  const [chosen, setChosen] = useState<string[]>([]);
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Looking for runs" />;
  if (!data.length) {
    return <Empty title="No training runs in ./runs."><p>Train an orchestrator; it takes minutes on a laptop:</p>
      <Command text="counterpoint train --help" /><p>Or see one trained at once:</p><Command text="counterpoint demo" /></Empty>;
  }
  const pick = (id: string) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const spec = data.filter((row) => chosen.includes(row.id)).map((row) => `${row.preset ?? row.id}=${row.folder}`).join(" ");
  return (
    <div class="page">
      <header class="page-head"><h1>Runs</h1><span class="quiet">{count(data.length, "run")}</span>
        <button type="button" class={chosen.length > 1 ? "main end" : "end"} disabled={chosen.length < 2}
          onClick={() => go({ page: "compare", spec })}>Compare {chosen.length > 1 ? chosen.length : ""}</button>
      </header>
      <div class="scroll"><table class="wide">
        <thead><tr><th scope="col"><span class="hidden">pick</span></th><th scope="col">run</th><th scope="col">preset</th>
          <th scope="col">world</th><th scope="col" class="number">seed</th><th scope="col" class="number">updates</th>
            <th scope="col" class="number">reward</th><th scope="col">state</th></tr></thead>
        <tbody>{data.map((row) => <Row key={row.id} row={row} isPicked={chosen.includes(row.id)} onPick={() => pick(row.id)} />)}
          </tbody>
      </table></div>
    </div>
  );
}

function Row(props: { row: RunRow; isPicked: boolean; onPick: () => void }) {
  const { row } = props;
  return (
    <tr class={props.isPicked ? "is-selected" : ""}>
      <td><input type="checkbox" checked={props.isPicked} aria-label={`Pick ${row.id} to compare`} onChange={props.onPick} /></td>
      <td><Link to={{ page: "runs", id: row.id }}><bdi>{row.id}</bdi></Link></td>
      <td><bdi>{row.preset ?? "–"}</bdi></td><td><bdi>{row.world ?? "–"}</bdi></td>
      <td class="number">{row.seed ?? "–"}</td><td class="number">{row.updates.toLocaleString("en")}</td>
        <td class="number">{plain(row.reward)}</td>
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
  const { row, series, alerts, samples } = props.run;
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
        <h1>run <bdi>{row.id}</bdi></h1>
        {row.is_live && <span class="badge">● live</span>}
        {row.is_steered && <Steered />}
        <span class="quiet">{row.preset} in {row.world}
          {row.seed !== null && `, seed ${row.seed}`} · {count(row.updates, "update")}{most > 0 && ` · step ${most}`}
            {row.reward !== null && ` · reward ${plain(row.reward)}`}</span>
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
                {group.title}</button>
        ))}
      </div>
      {!groups.length && <p class="nothing">No numbers yet.</p>}
      <div class="charts">
        {groups.filter((group) => !hidden.includes(group.title)).map((group, i) => (
          <Chart key={group.title} title={group.title} xLabel="update" series={group.series} group={`run/${row.id}`}
            marks={i ? NO_MARKS : marks} />
        ))}
      </div>
      <Samples ids={samples} />
    </div>
  );
}

const NO_MARKS: Mark[] = [];

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
