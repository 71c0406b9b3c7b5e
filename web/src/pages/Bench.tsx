// Results of `counterpoint bench run`: the leaderboard, the card of a team, two teams side by side. Always true: every cell is the
// text that the command prints; only results of one suite are offered side by side; what is shown is in the address.
import { Command, useLoaded, Waiting } from "../loaded";
import { count } from "../numbers";
import { Link } from "../shell/Link";
import { Failure } from "../shell/states";
import type { Bench as Found, BenchResult, BenchTable } from "../shapes.gen";
import { go, route, source } from "../state";
import "./pages.css";
import "./bench.css";

export default function Bench() {
  const at = route.value;
  if (at.page !== "bench") return null;
  return <Shown key={`${at.a}..${at.b}`} a={at.a} b={at.b} />;
}

function Shown(props: { a: string; b: string }) {
  const { a, b } = props;
  const { data, problem } = useLoaded(`bench/${a}/${b}`, "", () => source.value!.bench(a, b));
  return (
    <div class="page bench">
      <header class="page-head">
        <h1>Bench</h1>
        {a && <Link to={{ page: "bench", a: "", b: "" }}>Leaderboard</Link>}
        {data && a && <Choices a={a} b={b} results={data.results} />}
      </header>
      {problem ? <Failure error={problem} /> : !data ? <Waiting what="Reading results" /> : <Tables found={data} />}
    </div>
  );
}

/** The card of a team, and another of the same suite beside it. */
function Choices(props: { a: string; b: string; results: BenchResult[] }) {
  const { a, b, results } = props;
  const mine = results.find((one) => one.id === a);
  const others = results.filter((one) => one.id !== a && one.digest === mine?.digest);
  return (
    <>
      <label>Card of <select value={a} onChange={(event) => go({ page: "bench", a: event.currentTarget.value, b: "" })}>
        {results.map((one) => <option key={one.id} value={one.id}>{named(one, results)}</option>)}</select></label>
      <label>compared with <select value={b} onChange={(event) => go({ page: "bench", a, b: event.currentTarget.value })}>
        <option value="">none</option>
        {others.map((one) => <option key={one.id} value={one.id}>{named(one, results)}</option>)}</select></label>
    </>
  );
}

/** A result by its team; by its folder too where two teams have one name. */
function named(one: BenchResult, all: BenchResult[]): string {
  const isTwice = all.filter((other) => other.team === one.team && other.suite === one.suite).length > 1;
  return `${one.team}, ${one.suite}${isTwice ? ` (${one.id})` : ""}`;
}

function Tables(props: { found: Found }) {
  const { found } = props;
  if (!found.results.length) {
    return (
      <div class="state">
        <h2>No benchmark results here yet.</h2>
        <p>Play a suite, then reload this page:</p>
        <Command text="counterpoint bench run short --team policy:reference" />
      </div>
    );
  }
  return (
    <>
      <h2 class="bench-title"><bdi>{found.title}</bdi></h2>
      {found.tables.map((table) => <Table key={table.title} table={table} results={found.results} />)}
    </>
  );
}

function Table(props: { table: BenchTable; results: BenchResult[] }) {
  const { table } = props;
  const cellClass = (i: number) => (table.right.includes(i) ? "number" : "");
  return (
    <section class="bench-part">
      <h3>{table.title}</h3>
      {table.words && <p class="quiet">{table.words}</p>}
      {table.rows.length > 0 && <div class="scroll" tabIndex={0} role="region" aria-label={table.title}><table class="wide">
        <thead><tr>{table.head.map((text, i) => <th key={i} scope="col" class={cellClass(i)}>{text}</th>)}</tr></thead>
        <tbody>{table.rows.map((row, r) => (
          <tr key={r}>{row.map((text, i) => <Cell key={i} text={text} isHead={i === 0} class={cellClass(i)}
            to={i === 0 ? table.results[r] : undefined} runs={props.results.find((one) => one.id === table.results[r])?.runs} />)}</tr>
        ))}</tbody>
      </table></div>}
    </section>
  );
}

/** The interval is quieter than the mean before it. */
function Cell(props: { text: string; class: string; isHead: boolean; to: string | undefined; runs: number | undefined }) {
  const { text } = props;
  const [mean = "", interval = ""] = text.split(/(?= \[)/);
  const told = text === "differs" ? <span class="badge warn">differs</span> : text === "not established" ?
    <span class="quiet">{text}</span> : interval ? <>{mean}<span class="quiet">{interval}</span></> : text;
  if (!props.isHead) return <td class={props.class}>{told}</td>;
  return (
    <th scope="row" class={props.class}>
      {props.to ? <><Link to={{ page: "bench", a: props.to, b: "" }}><bdi>{text}</bdi></Link>{" "}
        <span class="quiet">{count(props.runs ?? 0, "run")}</span></> : <bdi>{told}</bdi>}
    </th>
  );
}
