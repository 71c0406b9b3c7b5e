// Every method side by side: ranks with what they leave open, quality and sample efficiency, differences from the baselines, curves.
// Always true: what is shown is in the address; a screening says that it establishes nothing; a line has the command that runs it.
import { useMemo } from "preact/hooks";
import { Chart } from "../charts/Chart";
import { useLoaded, Waiting } from "../loaded";
import { compact, percent, tenths } from "../numbers";
import { choices, type Filter, kept, type RaceSpec, writeRace } from "../racespec";
import { splitName } from "../series";
import { Failure } from "../shell/states";
import type { RaceDifference, RaceLine, RaceWorld } from "../shapes.gen";
import { go, source } from "../state";
import { Terms } from "../terms";

/** Curves beyond this are not told apart. */
const MOST_CURVES = 6;
const FILTERS: [Filter, string][] = [["reward", "Reward family"], ["unit", "Unit"], ["decision", "Decision"]];
const BASELINES = ["grpo", "counterpoint"];

export function Race(props: { spec: RaceSpec }) {
  const { spec } = props;
  const { data, problem } = useLoaded(`race/${spec.id}`, "", () => source.value!.race(spec.id));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Reading rows" />;
  const world = data.worlds.find((one) => one.world === spec.world) ?? data.worlds[0];
  if (!world) return <p class="page-note">No method has finished yet.</p>;
  const lines = kept(world.lines, spec);
  return (
    <>
      <Choices spec={spec} worlds={data.worlds} world={world} />
      <p class="page-note">Plan {data.plan}, suite {data.suite} · bound {compact(world.bound)} points · best known {tenths(
        world.best_known / world.bound)} of it · budget {compact(world.budget)} calls and rounds per run{world.decision &&
        ` · what is learned: ${world.decision}`}</p>
      {Object.keys(world.rules).length > 0 && <p class="page-note">Hand-made policies, in % of the bound:{" "}
        {Object.entries(world.rules).map(([name, share]) => `${name.replaceAll("_", " ")} ${tenths(share)}`).join(" · ")}</p>}
      {world.is_screening && <p class="notice">A screening: with fewer than 12 seeds no difference here is established.</p>}
      <Lines lines={lines} of={ranked(world.lines)} />
      <Curves world={world} lines={lines} />
      <Terms of={["bound", "hand-made policies", "best known", "final", "area", "calls to q %", "rank", "point", "seed", "collapsed",
        "minus grpo, minus counterpoint"]} />
      <ul class="page-note race-notes">{world.notes.map((text) => <li key={text}>{text}</li>)}</ul>
    </>
  );
}

function Choices(props: { spec: RaceSpec; worlds: RaceWorld[]; world: RaceWorld }) {
  const { spec, world } = props;
  const show = (change: Partial<RaceSpec>) => go({ page: "compare", spec: writeRace({ ...spec, ...change }) });
  return (
    <div class="page-chips race-filters">
      <label>World <select value={world.world} onChange={(event) => show({ world: event.currentTarget.value })}>
        {props.worlds.map((one) => <option key={one.world} value={one.world}>{one.world}</option>)}</select></label>
      {FILTERS.map(([filter, name]) => (
        <label key={filter}>{name} <select value={spec[filter]} onChange={(event) => show({ [filter]: event.currentTarget.value })}>
          <option value="">all</option>
          {choices(world.lines, filter).map((value) => <option key={value} value={value}>{value}</option>)}</select></label>
      ))}
    </div>
  );
}

/** How many methods have a rank: published numbers beside tuned ones are a line without one. */
const ranked = (lines: RaceLine[]) => lines.filter((line) => line.is_ranked).length;
const tenth = (value: number) => (100 * value).toFixed(1);

function Lines(props: { lines: RaceLine[]; of: number }) {
  const most = Math.max(1, ...props.lines.map((line) => line.high ?? line.mean));
  const least = Math.min(0, ...props.lines.map((line) => line.low ?? line.mean));
  const found = ranked(props.lines);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Methods"><table class="wide race">
      <caption>{found === props.of ? `${props.of} methods` : `${found} of ${props.of} methods`}</caption>
      <thead><tr><th scope="col" class="number">rank</th><th scope="col">method</th><th scope="col">may see</th><th scope="col">point</th>
        <th scope="col" class="number">seeds</th><th scope="col" class="number">final, % of bound</th>
        <th scope="col"><span class="hidden">picture</span></th>
        {BASELINES.map((name) => <th key={name} scope="col" class="number">minus {name}</th>)}
        <th scope="col" class="number">area, %</th>
        {[50, 80, 90].map((share) => <th key={share} scope="col" class="number">calls to {share} %</th>)}
        <th scope="col" class="number">collapsed</th><th scope="col" class="number">CPU s</th>
        <th scope="col">reward, unit, trains</th></tr></thead>
      <tbody>{props.lines.map((line) => <Line key={line.method + line.point} line={line} least={least} most={most} />)}</tbody>
    </table></div>
  );
}

function Line(props: { line: RaceLine; least: number; most: number }) {
  const { line, least, most } = props;
  const place = (value: number) => `${(100 * (value - least)) / (most - least || 1)}%`;
  const title = [line.source, line.guessed.length ? `not in the source: ${line.guessed.join("; ")}` : "", line.command];
  return (
    <tr class={line.is_ranked ? "" : "quiet"}>
      <td class="number">{line.is_ranked ? <><strong>{line.rank}</strong> [{line.rank_low}, {line.rank_high}]</> : "–"}</td>
      <th scope="row" title={title.filter(Boolean).join("\n")}><bdi>{line.method}</bdi>{line.guessed.length > 0 && " ?"}</th>
      <td class="quiet">{line.sees}</td>
      <td>{line.is_ranked ? line.point : "published, untuned"}</td>
      <td class="number">{line.seeds}</td>
      <td class="number"><strong>{tenth(line.mean)}</strong>
        {line.low !== null && line.high !== null && ` [${tenth(line.low)}, ${tenth(line.high)}]`}</td>
      <td><span class="interval" aria-hidden="true">
        {line.low !== null && line.high !== null &&
          <i style={{ left: place(line.low), right: `calc(100% - ${place(line.high)})` }} />}
        <b style={{ left: place(line.mean) }} /></span></td>
      {BASELINES.map((name) => <Minus key={name} found={line.differences.find((one) => one.baseline === name)} />)}
      <td class="number">{tenth(line.area)}</td>
      {line.calls.map((calls, i) => <td key={i} class="number">{calls === null ? "–" : compact(calls)}
        {line.reached[i]! < line.seeds && calls !== null && <span class="quiet"> {line.reached[i]}/{line.seeds}</span>}</td>)}
      <td class="number">{percent(line.collapsed)}</td><td class="number">{line.cpu_s.toFixed(0)}</td>
      <td class="quiet">{[line.families.join(" "), line.unit, line.trains.join(" ")].filter(Boolean).join(" · ")}</td>
    </tr>
  );
}

function Minus(props: { found: RaceDifference | undefined }) {
  const { found } = props;
  if (!found) return <td class="number">–</td>;
  const told = found.seeds < 2 ? "one seed" : found.verdict === "screening" ? `p ${found.p.toPrecision(2)}` : found.verdict;
  return <td class="number">{found.mean > 0 ? "+" : ""}{tenth(found.mean)} <span class="quiet">{told}</span></td>;
}

/** The curves of the first lines that are shown. */
function Curves(props: { world: RaceWorld; lines: RaceLine[] }) {
  const names = props.lines.filter((line) => line.is_ranked).slice(0, MOST_CURVES).map((line) => line.method);
  const series = names.flatMap((name) => props.world.curves.filter((one) => splitName(one.name)[1] === name));
  const levels = useMemo(() => [{ name: "bound", value: 1, is_bound: true },
    ...Object.entries(props.world.rules).map(([name, value]) => ({ name, value, is_bound: false }))], [props.world]);
  if (!series.length) return null;
  return (
    <div class="charts race-chart">
      <Chart key={names.join()} title="share of the bound" xLabel="calls and rounds" series={series} group="race" height={280}
        levels={levels} />
    </div>
  );
}
