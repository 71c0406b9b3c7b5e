// Ways of training side by side. Always true: what may not be compared says why; a difference has its interval or says that it
// has none; the tasks that moved most are named.
import { useState } from "preact/hooks";
import { Chart } from "../charts/Chart";
import { Command, useLoaded, Waiting } from "../loaded";
import { count, plain, signedPlain, tenths } from "../numbers";
import { readRace } from "../racespec";
import { charts } from "../series";
import { Link } from "../shell/Link";
import { Failure, Steered } from "../shell/states";
import type { Compare as Found, CompareRow, Level, RunRow } from "../shapes.gen";
import { go, route, source } from "../state";
import { Terms } from "../terms";
import { Race } from "./Race";
import "./pages.css";

export default function Compare() {
  const at = route.value;
  if (at.page !== "compare") return null;
  const race = readRace(at.spec);
  return (
    <div class="page">
      <header class="page-head"><h1>Compare</h1><Sides key={at.spec} spec={at.spec} /></header>
      {race ? <Race spec={race} /> : at.spec ? <Result key={at.spec} spec={at.spec} /> : <Choose />}
    </div>
  );
}

function Sides(props: { spec: string }) {
  const [spec, setSpec] = useState(props.spec);
  return (
    <form class="spec" onSubmit={(event) => { event.preventDefault(); go({ page: "compare", spec }); }}>
      <input type="text" class="search" value={spec} aria-label="Sides to compare" placeholder="grpo=runs/a,runs/b c3=runs/c*"
        onInput={(event) => setSpec(event.currentTarget.value)} />
      <button type="submit" class="main" disabled={!spec.trim()}>Compare</button>
    </form>
  );
}

/** Sides from the runs that are there: one for each preset in a world. */
function Choose() {
  const { data, problem } = useLoaded("runs", "", () => source.value!.runs());
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Looking for runs" />;
  const worlds = [...new Set(data.map((row) => row.world))].map((world) =>
    [world, presetsOf(data.filter((row) => row.world === world))] as const);
  const able = worlds.filter(([, presets]) => presets.length > 1);
  return (
    <div class="state">
      <h2>Which runs?</h2>
      <p>Pick them in <Link to={{ page: "runs", id: null }}>Runs</Link>, or write the sides above: <code>label=run,run label=run</code></p>
      {able.map(([world, presets]) => (
        <p key={world ?? ""}>In {world}: <Link
          to={{ page: "compare", spec: presets.map(([name, ids]) => `${name}=${ids.join(",")}`).join(" ") }}>
          {presets.map(([name, ids]) => `${name} (${count(ids.length, "run")})`).join(" against ")}</Link></p>
      ))}
      {!able.length && <><p class="quiet">No world here has runs of two presets. To train some:</p>
        <Command text="counterpoint compare runs --presets grpo,counterpoint --world wide_verify --seeds 5" /></>}
      <Races />
    </div>
  );
}

/** Folders of `counterpoint compare methods`. */
function Races() {
  const { data } = useLoaded("races", "", () => source.value!.races());
  if (!data) return null;
  return (
    <>
      {data.map((race) => (
        <p key={race.id}>All methods, ranked: <Link to={{ page: "compare", spec: `race:${race.id}` }}>
          {race.is_released ? "results that come with Counterpoint" : <bdi>{race.id}</bdi>}</Link>{" "}
          <span class="quiet">{count(race.methods, "method")}, plan {race.plan}</span></p>
      ))}
      {!data.length && <><p class="quiet">To rank all methods:</p><Command text="counterpoint compare methods" /></>}
    </>
  );
}

function presetsOf(rows: RunRow[]): [string, string[]][] {
  const found = new Map<string, string[]>();
  for (const row of rows) if (row.preset) found.set(row.preset, [...(found.get(row.preset) ?? []), row.id]);
  return [...found];
}

function Result(props: { spec: string }) {
  const [anyway, setAnyway] = useState(false);
  const { data, problem } = useLoaded(`compare/${props.spec}`, String(anyway), () => source.value!.compare(props.spec, anyway));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Pairing tasks and seeds" />;
  return <Shown found={data} onAnyway={() => setAnyway(true)} />;
}

function Shown(props: { found: Found; onAnyway: () => void }) {
  const { found } = props;
  return (
    <>
      {found.refusal && (
        <div class="notice bad" role="alert"><p><strong>{found.rows.length ? "Warning:" : "Refused:"}</strong> {found.refusal}</p>
          {!found.rows.length && <button type="button" onClick={props.onAnyway}>Show it anyway</button>}</div>
      )}
      {found.heading && <p class="page-note quiet">{found.heading}</p>}
      {found.rows.length > 0 && <Table rows={found.rows} metric={found.metric} levels={found.levels} />}
      {found.differences.length > 0 && <Differences rows={found.differences} />}
      <div class="charts race-chart">
        {charts(found.curves).map((group) =>
          <Chart key={group.title} title={group.title} xLabel="calls and rounds" series={group.series} group="compare" levels={found.levels} height={280} />)}
      </div>
      {found.remarks.length > 0 && <ul class="page-note">{found.remarks.map((text) => <li key={text}>{text}</li>)}</ul>}
      {found.moved.length > 0 && <Moved rows={found.moved} />}
      <Terms of={["reward", "held out", "95 % CI", "bound", "of bound", "hand-made policies", "calls per episode", "difference", "p",
        "better, worse, same"]} />
    </>
  );
}

function Table(props: { rows: CompareRow[]; metric: string; levels: Level[] }) {
  const values = props.levels.map((level) => level.value);
  const most = Math.max(...props.rows.map((row) => row.high ?? row.mean), ...values, 0);
  const least = Math.min(...props.rows.map((row) => row.low ?? row.mean), ...values, 0);
  const bound = props.levels.find((level) => level.is_bound)?.value ?? null;
  const hasTokens = props.rows.some((row) => row.tokens !== null);
  const place = (value: number) => `${(100 * (value - least)) / (most - least || 1)}%`;
  return (
    <div class="scroll"><table class="wide">
      <caption class="hidden">{props.metric} of each side</caption>
      <thead><tr><th scope="col">{props.metric}</th><th scope="col" class="number">runs</th>
        <th scope="col" class="number">mean</th><th scope="col" class="number">95 % CI</th>
          <th scope="col"><span class="hidden">picture</span></th><th scope="col" class="number">of bound</th>
        <th scope="col" class="number">calls/episode</th>{hasTokens && <th scope="col" class="number">tokens/episode</th>}
          <th scope="col" class="number">agents/episode</th><th scope="col" class="number">calls spent/run</th></tr></thead>
      <tbody>{props.rows.map((row) => (
        <tr key={row.name}>
          <th scope="row"><bdi>{row.name}</bdi>
            {row.steered > 0 && <> <Steered text={`${row.steered} steered`} /></>}</th><td class="number">{row.seeds}</td>
            <td class="number"><strong>{plain(row.mean, 4)}</strong></td>
          <td class="number">{row.low === null || row.high === null ? "–" : `[${plain(row.low, 4)}, ${plain(row.high, 4)}]`}</td>
          <td><span class="interval" aria-hidden="true">
            {row.low !== null && row.high !== null &&
              <i style={{ left: place(row.low), right: `calc(100% - ${place(row.high)})` }} />}
                <b style={{ left: place(row.mean) }} /></span></td>
          <td class="number">{tenths(row.share_of_optimum)}</td>
          <td class="number">{plain(row.calls)}</td>{hasTokens && <td class="number">{plain(row.tokens)}</td>}
            <td class="number">{plain(row.agents)}</td><td class="number">{row.spent === null ? "–" : Math.round(row.spent).toLocaleString("en")}</td>
        </tr>
      ))}
      {props.levels.map((level) => (
        <tr key={level.name} class="quiet">
          <th scope="row" class="quiet"><bdi>{level.name.replaceAll("_", " ")}</bdi>{level.is_bound ? "" : <small class="quiet"> hand-made</small>}</th><td class="number" />
          <td class="number">{plain(level.value, 4)}</td><td />
          <td><span class="interval" aria-hidden="true"><b style={{ left: place(level.value) }} /></span></td>
          <td class="number">{bound !== null && bound > 0 ? tenths(level.value / bound) : "–"}</td>
          <td colSpan={hasTokens ? 4 : 3} />
        </tr>
      ))}</tbody>
    </table></div>
  );
}

const num = (row: Record<string, unknown>, key: string): number | null => (typeof row[key] === "number" ? row[key] : null);
const word = (row: Record<string, unknown>, key: string): string => String(row[key] ?? "");

function Differences(props: { rows: Record<string, unknown>[] }) {
  return (
    <div class="scroll"><table class="wide">
      <caption class="hidden">Differences</caption>
      <thead><tr><th scope="col">difference</th><th scope="col" class="number">diff</th><th scope="col" class="number">95 % CI</th>
        <th scope="col" class="number">p</th><th scope="col" class="number">p (Holm)</th><th scope="col" class="number">better</th><th scope="col" class="number">worse</th>
          <th scope="col" class="number">same</th></tr></thead>
      <tbody>{props.rows.map((row, i) => {
        const [low, high] = [num(row, "low"), num(row, "high")];
        return (
          <tr key={i}>
            <th scope="row"><bdi>{word(row, "label")}</bdi> minus <bdi>{word(row, "against")}</bdi></th>
              <td class="number"><strong>{signedPlain(num(row, "diff"))}</strong></td>
            <td class="number">{low === null || high === null ? "none" : `[${signedPlain(low)}, ${signedPlain(high)}]`}</td>
            {["p", "p_holm"].map((name) => <td key={name} class="number">{chance(num(row, name))}</td>)}
            {["better", "worse", "same"].map((name) => <td key={name} class="number">{num(row, name) ?? "–"}</td>)}
          </tr>
        );
      })}</tbody>
    </table></div>
  );
}

const chance = (p: number | null) => (p === null ? "–" : p < 1e-4 ? "<0.0001" : p.toFixed(4));

/** The tasks that moved most; a row with two traces opens their difference. */
function Moved(props: { rows: Record<string, unknown>[] }) {
  return (
    <section class="page-note" aria-label="Tasks that moved most">
      <h2>Tasks that moved most</h2>
      <ul class="chips">{props.rows.map((row, i) => {
        const text = <>task {word(row, "task")} <strong>{signedPlain(num(row, "diff"))}</strong> <span class="quiet">
          <bdi>{word(row, "label")}</bdi></span></>;
        const [a, b] = [row["a"], row["b"]];
        return <li key={i}>
          {typeof a === "string" && typeof b === "string" ? <Link to={{ page: "diff", a, b }} class="sample">{text}</Link>
            : <span class="sample">{text}</span>}</li>;
      })}</ul>
    </section>
  );
}
