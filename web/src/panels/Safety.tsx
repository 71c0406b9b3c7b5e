// What came from outside, and where it went. Always true: only tainted paths are here, from source to sink; orders that were carried
// out, reports of a monitor, copied words and shared context stand apart; every step can be selected.
import { useMemo } from "preact/hooks";
import { Note, useLoaded, Waiting } from "../loaded";
import { count } from "../numbers";
import { familyOf, glyphOf, TAINT_GLYPH } from "../palette";
import { Plain } from "../plaintext";
import { Failure } from "../shell/states";
import type { Safety as Found, TaintPath } from "../shapes.gen";
import { EventId } from "../shell/EventId";
import { agentName, columns, rowOf, selectAgent, selectedEvent, selectEvent, source, trace } from "../state";
import "../views/views.css";

const SEVERITIES = ["critical", "high", "medium", "low", "info"];

export default function Safety() {
  const { id } = trace.value!;
  const { data, problem } = useLoaded(id, id, () => source.value!.panel<Found>(id, "safety"));
  if (problem) return <Failure error={problem} />;
  if (!data) return <Waiting what="Following content from outside" />;
  return <Paths found={data} />;
}

function Paths(props: { found: Found }) {
  const { found } = props;
  const groups = useMemo(() => apart(found.paths), [found]);
  return (
    <section class="safety" aria-label="Safety">
      <Reach found={found} />
      {found.notes.map((note) => <p key={note} class={note.startsWith("Injection: no ") ? "quiet" : "note"}><Note text={note} /></p>)}
      {(found.odd ?? []).length > 0 && <div class="reach"><p>{count(found.odd.length, "event reads", "events read")} like instructions; only a fork can
        tell whether {found.odd.length === 1 ? "it" : "they"} changed anything.</p>
        <p class="chips">{found.odd.slice(0, FEW).map((n) => <Step key={n} n={n} />)}
          {found.odd.length > FEW && <span class="quiet">and {found.odd.length - FEW} more</span>}</p></div>}
      {!found.paths.length && <p class="nothing">{found.sources.length
        ? "There is content from outside, and none of it reached an effect."
        : "Nothing in this trace is marked as coming from outside."}</p>}
      {groups.map(([title, about, paths]) => paths.length > 0 && (
        <section key={title} class="paths" aria-label={title}>
          <h3>{title} <span class="badge">{paths.length}</span> <span class="quiet">{about}</span></h3>
          <ol>{paths.map((path, i) => <li key={i}><Path path={path} /></li>)}</ol>
        </section>
      ))}
      <Where found={found} />
    </section>
  );
}

/** What each strength is called, and what it means; the strongest first. */
const STRENGTHS: [string, string, string][] = [
  ["order", "Orders carried out", "the act does what a text from outside orders, and nobody else asked for it"],
  ["reported", "Reported by a monitor", "what the run's own gates, limits and reviewers said"],
  ["copied", "Copied words", "possible: the effect's target stands in content from outside, as links and names do that are followed up"],
  ["context", "Shared context", "possible: the agent that acted had read the content"],
];

/** By strength, each with the gravest first; a strength that this page does not know is shared context. */
function apart(paths: TaintPath[]): [string, string, TaintPath[]][] {
  const rank = (path: TaintPath) => (SEVERITIES.indexOf(path.severity) + SEVERITIES.length + 1) % (SEVERITIES.length + 1);
  return STRENGTHS.map(([strength, title, about]) => [title, about,
    paths.filter((path) => strengthOf(path)[0] === strength).sort((a, b) => rank(a) - rank(b) || a.sink - b.sink)]);
}

function strengthOf(path: TaintPath): [string, string, string] {
  return STRENGTHS.find(([strength]) => strength === path.strength) ?? STRENGTHS[STRENGTHS.length - 1]!;
}

function Reach(props: { found: Found }) {
  const { about } = trace.value!;
  const { sources, tainted, agents } = props.found;
  return (
    <header class="reach">
      <p><strong>{count(sources.length, "source")}</strong> from outside reached <strong>
        {tainted.toLocaleString("en")} of {count(about.events, "event")}</strong>{" "}
        and <strong>{agents.length} of {count(about.agents.filter((agent) => !agent.is_outside).length, "agent")}</strong></p>
    </header>
  );
}

const MOST = 200;
const FEW = 8;

/** Every source and every agent that was reached: behind a fold, for there may be hundreds. */
function Where(props: { found: Found }) {
  const { sources, agents } = props.found;
  return (
    <>
      {sources.length > 0 && <details class="where"><summary>All {count(sources.length, "source")}</summary>
        <p class="chips">{sources.slice(0, MOST).map((n) => <Step key={n} n={n} />)}
          {sources.length > MOST && <span class="quiet">and {sources.length - MOST} more</span>}</p></details>}
      {agents.length > 0 && <details class="where"><summary>All {count(agents.length, "agent")} that it reached</summary>
        <p class="chips">{agents.slice(0, MOST).map((agent) => (
          <button key={agent} type="button" class="chip" onClick={() => selectAgent(agent)}><bdi>{agentName(agent)}</bdi></button>
        ))}{agents.length > MOST && <span class="quiet">and {agents.length - MOST} more</span>}</p></details>}
    </>
  );
}

/** source > ... > sink, with the rule it broke and the gate that would have stopped it. */
function Path(props: { path: TaintPath }) {
  const { path } = props;
  const steps = path.events.length ? path.events : [path.source, path.sink];
  return (
    <article class={`path severity-${path.severity}`}>
      <p class="path-head">
        <span class={path.severity === "high" || path.severity === "critical" ? "badge bad" : "badge warn"}>⚠ {path.severity}
          {path.is_blocked && ", blocked"}</span>
        <span class="badge taint">{TAINT_GLYPH} {strengthOf(path)[1].toLowerCase()}</span>
        <Plain text={path.rule} />
      </p>
      <ol class="steps" aria-label="From source to sink">
        {steps.map((n, i) => (
          <li key={n}>
            {i > 0 && <span class="arrow" aria-hidden="true">→</span>}
            <Step n={n}
              part={n === path.source ? "source" : n === path.sink ? "sink" : path.gate?.event === n ? "gate" : undefined} />
          </li>
        ))}
      </ol>
      {path.gate
        ? <p class="gate">First gate that would have stopped it: <Step n={path.gate.event} /> <Plain text={path.gate.text} /></p>
        : path.is_blocked && <p class="gate quiet">It was blocked before it had an effect.</p>}
    </article>
  );
}

/** One event as a button: what it is, whose, and its part in the path. */
function Step(props: { n: number; part?: "source" | "sink" | "gate" | undefined }) {
  const { n, part } = props;
  const row = rowOf(n);
  const at = columns.value;
  const { about } = trace.value!;
  const type = row >= 0 && at ? about.types[at.type[row]!] ?? "unknown" : null;
  const tool = row >= 0 && at ? about.tools[at.tool[row]! - 1] : undefined;
  return (
    <button type="button" class={part ? `step is-${part}` : "step"} aria-pressed={n === selectedEvent.value}
      onClick={() => selectEvent(n)}>
      {part && <em>{part}</em>}
      {type && <span class={`glyph family-${familyOf(type)}`} aria-hidden="true">{glyphOf(type)}</span>}
      <span><bdi>{row >= 0 && at ? agentName(at.agent[row]!) : ""}</bdi> <EventId n={n} /></span>
      <small class="quiet"><bdi>{tool ?? type?.replaceAll("_", " ") ?? ""}</bdi></small>
    </button>
  );
}
