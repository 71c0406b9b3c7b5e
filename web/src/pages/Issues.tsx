// The board of issues, and one issue with its runs. Always true: they are those of `counterpoint issues` for the query in the address;
// what is regressed or open stands first; a decision is in the store before the page shows it.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { asProblem, Fix, sentence, useLoaded, Waiting } from "../loaded";
import { compact, count, money } from "../numbers";
import { Plain } from "../plaintext";
import { issuesLink, traceLink, type Route } from "../router";
import type { IssueBoard, IssueLine, IssuePage, IssueRunLine } from "../shapes.gen";
import { Link } from "../shell/Link";
import { Empty, Failure } from "../shell/states";
import { say } from "../shell/toast";
import type { SourceError } from "../source";
import { epoch, go, route, source } from "../state";
import "./pages.css";
import "./issues.css";

type Here = Extract<Route, { page: "issues" }>;

export default function Issues() {
  const at = route.value;
  if (at.page !== "issues") return null;
  if (source.value!.kind !== "server") return <Empty title="Issues are of a store: open it with counterpoint view." />;
  return at.id === null ? <Board at={at} /> : <One id={at.id} query={at.query} key={at.id} />;
}

// -- the board -----------------------------------------------------------------------------------------------------------

/** What stands on the board unasked: what needs somebody, and is not of one run alone. */
const needsSomebody = (one: IssueLine): boolean => (one.state === "open" || one.state === "regressed") && !one.is_rare;

const STATES: readonly { id: string; text: string; has: (one: IssueLine) => boolean }[] = [
  { id: "", text: "To do", has: needsSomebody },
  { id: "regressed", text: "Regressed", has: (one) => one.state === "regressed" },
  { id: "resolved", text: "Resolved", has: (one) => one.state === "resolved" },
  { id: "ignored", text: "Ignored", has: (one) => one.state === "ignored" },
  { id: "all", text: "All, those of one run too", has: () => true },
];

const KINDS: Record<string, string> = {
  injection: "Injections", stuck: "Stuck", failure: "Failures", loop: "Loops", runaway: "Runaway", cost_jump: "Cost", blame: "Blame",
};

function Board({ at }: { at: Here }) {
  const { data, problem } = useLoaded("issues", at.query, () => source.value!.issues(at.query));
  return (
    <div class="page">
      <header class="page-head">
        <h1>Issues</h1>
        <Query key={at.query} at={at} />
        {data && <span class="quiet" role="status">{count(data.issues.length, "issue")} in {count(data.runs, "run")}
          {data.unread.length > 0 && `, ${count(data.unread.length, "run")} could not be read`}</span>}
      </header>
      {problem && (data ? <p class="notice" role="alert">{sentence(problem.what)} {problem.fix && <Fix text={problem.fix} />}</p>
        : <Failure error={problem} />)}
      {!data && !problem && <Waiting what="Looking at every run" />}
      {data && <Shown board={data} at={at} />}
    </div>
  );
}

function Query({ at }: { at: Here }) {
  const [text, setText] = useState(at.query);
  return (
    <form role="search" onSubmit={(event) => { event.preventDefault(); go({ ...at, query: text.trim() }); }}>
      <input type="search" class="search filter" value={text} aria-label="Search runs"
        placeholder="of which runs: project:shop last:30d" onInput={(event) => setText(event.currentTarget.value)} />
    </form>
  );
}

function Shown({ board, at }: { board: IssueBoard; at: Here }) {
  const state = STATES.find((one) => one.id === at.state) ?? STATES[0]!;
  const ofState = board.issues.filter(state.has);
  const rows = ofState.filter((one) => !at.kind || one.kind === at.kind);
  const kinds = Object.keys(board.kinds).filter((kind) => kind === at.kind || ofState.some((one) => one.kind === kind));
  return (
    <>
      <div class="issue-filters">
        <div class="chips" role="group" aria-label="State">
          {STATES.map((one) => (
            <button key={one.id} type="button" class="chip" aria-pressed={one === state} onClick={() => go({ ...at, state: one.id })}>
              {one.text} <span class="quiet">{board.issues.filter(one.has).length}</span></button>
          ))}
        </div>
        <div class="chips" role="group" aria-label="Kind">
          {kinds.map((kind) => (
            <button key={kind} type="button" class="chip" aria-pressed={kind === at.kind} title={board.kinds[kind]}
              onClick={() => go({ ...at, kind: kind === at.kind ? "" : kind })}>
              {KINDS[kind] ?? kind} <span class="quiet">{ofState.filter((one) => one.kind === kind).length}</span></button>
          ))}
        </div>
      </div>
      {rows.length ? <Table rows={rows} query={at.query} /> : <p class="nothing">{board.issues.length ? "No issue is in this state." : "Nothing recurs."}</p>}
    </>
  );
}

function Table({ rows, query }: { rows: IssueLine[]; query: string }) {
  return (
    <div class="scroll issue-table">
      <table class="wide">
        <thead>
          <tr>
            <th scope="col">Issue</th><th scope="col">State</th><th scope="col" class="number">Runs</th>
            <th scope="col" class="number">Times</th><th scope="col" class="number">Unmended</th><th scope="col">Seen</th>
            <th scope="col">Projects</th><th scope="col" class="number">Cost</th><th scope="col">Last 8 weeks</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.id}>
              <th scope="row"><Link to={issuesLink(one.id, query)}><Plain text={one.name} /></Link></th>
              <td><State state={one.state} /></td>
              <td class="number">{one.runs.toLocaleString("en")}</td>
              <td class="number">{one.count.toLocaleString("en")}</td>
              <td class="number">{one.open.toLocaleString("en")}</td>
              <td class="seen">{one.seen}</td>
              <td class="projects"><bdi>{projects(one)}</bdi></td>
              <td class="number" title="Of the model calls that led to it: at least this much">{cost(one)}</td>
              <td><Trend weeks={one.trend} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function projects(one: IssueLine): string {
  const [first, ...more] = Object.keys(one.projects).map((name) => name || "none");
  return `${first ?? "–"}${more.length ? ` and ${more.length} more` : ""}`;
}

const cost = (one: IssueLine): string => (one.cost_usd === null ? money(null) : `${money(one.cost_usd)}+`);

function spent(one: IssueLine): string {
  const parts = [...(one.cost_usd === null ? [] : [cost(one)]), ...(one.tokens ? [`${compact(one.tokens)} tokens`] : [])];
  return parts.length ? `${parts.join(" and ")} of the model calls that led to it` : "not known";
}

function State({ state }: { state: string }) {
  return <span class={state === "regressed" ? "badge bad" : state === "open" ? "badge warn" : "badge"}>{state}</span>;
}

/** Runs in each week as bars, the oldest first. */
function Trend({ weeks }: { weeks: number[] }) {
  const most = Math.max(1, ...weeks);
  return (
    <svg class="trend" viewBox={`0 0 ${weeks.length * 8} 20`} role="img" aria-label={`Runs per week, the oldest first: ${weeks.join(", ")}`}>
      <path class="base" d={`M0 19.5H${weeks.length * 8}`} />
      {weeks.map((n, i) => n > 0 && <rect key={i} x={i * 8 + 1} width={6} y={19 - 17 * n / most} height={17 * n / most} />)}
    </svg>
  );
}

// -- one issue -----------------------------------------------------------------------------------------------------------

/** What a decision answered, until the page asks anew. */
const answered = signal<{ page: IssuePage; era: number } | null>(null);

function One({ id, query }: { id: string; query: string }) {
  const { data: loaded, problem } = useLoaded(`issue/${id}`, query, () => source.value!.issue(id, query));
  const known = answered.value;
  const data = known && known.era === epoch.value && known.page.issue.id === loaded?.issue.id && !query ? known.page : loaded;
  if (!data) return problem ? <Failure error={problem} /> : <Waiting what="Looking at every run" />;
  const { issue } = data;
  return (
    <div class="page">
      <header class="page-head">
        <h1><Plain text={issue.name} /></h1>
        <State state={issue.state} />
        <span class="quiet"><code>{issue.id}</code> · {data.what}</span>
        <span class="end"><Link to={issuesLink(null, query)}>All issues</Link></span>
      </header>
      <dl class="issue-facts page-note">
        <Fact name="Seen">{count(issue.count, "time")} in {count(issue.runs, "run")}, {issue.open.toLocaleString("en")} unmended; {issue.seen}</Fact>
        <Fact name="Cost">{spent(issue)}</Fact>
        <Fact name="Projects">{Object.entries(issue.projects).slice(0, 12).map(([name, n], i) =>
          <span key={name}>{i > 0 && ", "}<bdi>{name || "none"}</bdi> ({n})</span>)}</Fact>
        <Fact name="Weeks"><Trend weeks={issue.trend} /></Fact>
        {issue.decided && <Fact name="Decided"><Plain text={issue.decided} /></Fact>}
      </dl>
      {source.value!.canWrite && <Decide issue={issue} />}
      <Runs page={data} />
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function Decide({ issue }: { issue: IssueLine }) {
  const [note, setNote] = useState("");
  const [problem, setProblem] = useState<SourceError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const keep = async (state: string) => {
    setBusy(true);
    try {
      const page = await source.value!.decide(issue.id, state, note);
      epoch.value += 1;
      answered.value = { page, era: epoch.value };
      setNote("");
      setProblem(null);
      say(`The issue is ${page.issue.state}.`);
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };
  const choices: [string, string, boolean][] = [
    ["resolved", "Resolve", issue.state !== "resolved"],
    ["ignored", "Ignore", issue.state !== "ignored"],
    ["open", "Reopen", issue.state !== "open"],
  ];
  return (
    <section class="page-note decide" aria-label="Decide">
      <input type="text" value={note} aria-label="Why" placeholder="why, or what was done" maxLength={2000}
        onInput={(event) => setNote(event.currentTarget.value)} />
      {choices.filter(([, , isOffered]) => isOffered).map(([state, text]) => (
        <button key={state} type="button" class={state === "resolved" ? "main" : ""} disabled={isBusy}
          onClick={() => void keep(state)}>{text}</button>
      ))}
      <span class="quiet">A resolved issue that a later run shows again is regressed.</span>
      {problem && <p class="notice bad" role="alert">{sentence(problem.what)} {problem.fix && <Fix text={problem.fix} />}</p>}
    </section>
  );
}

function Runs({ page }: { page: IssuePage }) {
  return (
    <section aria-label="Runs">
      <h2 class="issue-runs-head">Runs, the newest first{page.left_out > 0 && <span class="quiet"> {page.left_out.toLocaleString("en")} more are not listed</span>}</h2>
      <div class="scroll issue-table">
        <table class="wide">
          <thead>
            <tr><th scope="col">Run</th><th scope="col">Project</th><th scope="col">Seen</th><th scope="col" class="number">Times</th>
              <th scope="col">Events</th><th scope="col">What it says</th></tr>
          </thead>
          <tbody>{page.runs.map((run) => <RunRow key={run.trace_id} run={run} />)}</tbody>
        </table>
      </div>
    </section>
  );
}

function RunRow({ run }: { run: IssueRunLine }) {
  return (
    <tr>
      <th scope="row"><Link to={traceLink(run.trace_id, run.events[0] === undefined ? {} : { event: run.events[0] })}
        title={run.trace_id}><Plain text={run.title ?? run.trace_id} /></Link></th>
      <td><bdi>{run.project ?? "–"}</bdi></td>
      <td class="seen">{run.seen}</td>
      <td class="number">{run.count.toLocaleString("en")}</td>
      <td class="events">{run.events.map((event) => (
        <Link key={event} to={traceLink(run.trace_id, { event })}><bdi>{event.length > 16 ? `${event.slice(0, 15)}…` : event}</bdi></Link>
      ))}{run.count > run.events.length && run.events.length > 0 && <span class="quiet">and {run.count - run.events.length} more</span>}</td>
      <td class="words"><Plain text={run.words.slice(0, 300)} /></td>
    </tr>
  );
}
