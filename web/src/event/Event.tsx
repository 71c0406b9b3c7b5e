// The right panel: the selected event, or else the selected agent, or else the trace. Always true: text is text, whatever it
// holds; what is cut says how much; every neighbour is a link.
import { useEffect, useState } from "preact/hooks";
import { onCommand } from "../keys";
import { bytes, compact, moment, signed, span } from "../numbers";
import { familyOf, glyphOf } from "../palette";
import { Plain } from "../plaintext";
import { Rich } from "../rich";
import { FLAGS, type EventDetail, type Neighbour } from "../shapes.gen";
import { Failure } from "../shell/states";
import { shortId } from "../shell/EventId";
import { Link } from "../shell/Link";
import { say } from "../shell/toast";
import {
  agentName, columns, creditByEvent, epoch, eventName, method, rowOf, selectAgent, selectEvent, selectedAgent, selectedEvent,
  source, trace,
} from "../state";
import { AgentCard, TraceCard } from "./cards";
import { ForkButton, ForkForm, whyNoFork } from "./Fork";
import { NoteForm } from "./NoteForm";
import "./event.css";

export default function EventPanel() {
  if (selectedEvent.value >= 0) return <EventCard n={selectedEvent.value} />;
  return selectedAgent.value >= 0 ? <AgentCard agent={selectedAgent.value} /> : <TraceCard />;
}

/** The event from the source; the last answer stays while the next is asked for. */
function useEvent(n: number): { detail: EventDetail | null; error: unknown; loadAll: () => void; isBusy: boolean } {
  const id = trace.value!.id;
  const [detail, setDetail] = useState<EventDetail | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [whole, setWhole] = useState(-1);
  const isWhole = whole === n;
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    let isOver = false;
    setBusy(true);
    source.value!.event(id, n, isWhole).then(
      (found) => { if (!isOver) { setDetail(found); setError(null); setBusy(false); } },
      (failed: unknown) => { if (!isOver) { setError(failed); setBusy(false); } },
    );
    return () => { isOver = true; };
  }, [id, n, isWhole, epoch.value]);
  return { detail, error, loadAll: () => setWhole(n), isBusy };
}

const FLAG_BADGES: [keyof typeof FLAGS, string, string][] = [
  ["tainted", "▨ tainted", "taint"], ["untrusted", "from outside", "taint"], ["failed", "✕ failed", "bad"],
    ["on_path", "on the critical path", ""],
  ["open", "open: no end yet", "warn"], ["human", "human", ""], ["safety", "safety", "warn"], ["unlinked", "unlinked", "warn"],
];

function Badges({ n, detail }: { n: number; detail: EventDetail | null }) {
  const row = rowOf(n);
  const at = columns.value;
  const flags = row >= 0 && at ? at.flags[row]! : 0;
  const credit = creditByEvent.value?.[n];
  return (
    <ul class="badges" aria-label="Badges">
      {FLAG_BADGES.filter(([flag]) => flags & FLAGS[flag]).map(([flag, text, look]) => <li key={flag}
        class={`badge ${look}`}>{text}</li>)}
      {detail?.badge && <li class="badge" title="How this event of the fork came about">{detail.badge}</li>}
      {row >= 0 && at && <li class="badge">{at.tokens[row]! > 0 ? `${compact(at.tokens[row])} tokens` : "tokens missing"}</li>}
      {row >= 0 && at && <li class="badge">{Number.isNaN(at.dur[row]!) ? "duration missing" : span(at.dur[row])}</li>}
      {credit !== undefined && !Number.isNaN(credit) && <li
        class={`badge ${credit < 0 ? "credit-down" : "credit-up"}`}>{method.value} {signed(credit)}</li>}
    </ul>
  );
}

function EventCard({ n }: { n: number }) {
  const { about } = trace.value!;
  const { detail: last, error, loadAll, isBusy } = useEvent(n);
  // While the next event is on its way the last one's text stays, dimmed: a blink at every arrow key would be worse.
  const detail = last?.n === n ? last : null;
  const [isForking, fork] = useState(false);
  useEffect(() => fork(false), [n]);
  const row = rowOf(n);
  const name = detail?.id ?? eventName(n);
  const type = String(detail?.fields["type"] ?? (row >= 0 ? about.types[columns.value!.type[row]!] : "") ?? "");
  const canFork = about.can_fork && source.value!.canWrite;
  useEffect(() => onCommand("fork", () => { if (canFork) fork(true); else say(whyNoFork()); }), [canFork]);
  return (
    <section class="event" aria-label="Event" aria-busy={isBusy}>
      <header class="panel-head">
        <h2><span class={`glyph family-${familyOf(type)}`}
          aria-hidden="true">{glyphOf(type)}</span><bdi title={name}>{shortId(name)}</bdi></h2>
        <span>{type.replaceAll("_", " ")}</span>
        <div class="end">
          <ForkButton canFork={canFork} title="Change this event and run on (X)" isOpen={isForking} onFork={() => fork(!isForking)} />
          <button type="button" class="plain" onClick={() => { selectedEvent.value = -1; }}
            aria-label="Close the event">✕</button>
        </div>
      </header>
      <div class="event-body">
        {error !== null && <Failure error={error} />}
        <p class="event-who"><Who n={n} detail={detail} /></p>
        <Badges n={n} detail={detail} />
        {isForking && detail && <ForkForm event={detail} onClose={() => fork(false)} />}
        {last && (
          <div class={detail ? "event-parts" : "event-parts stale"}>
            <Payload detail={last} onAll={loadAll} />
            <Neighbours title="Caused by" mark="▲" all={last.causes} />
            <Neighbours title="Led to" mark="▼" all={last.effects} />
            <Fields fields={last.fields} />
          </div>
        )}
        {detail && <NoteForm trace={trace.value!.id} event={detail.id} n={n} />}
        {about.parent && <p><Link
          to={{ page: "diff", a: about.parent, b: about.id }}>Compare with the trace it was forked from</Link></p>}
      </div>
    </section>
  );
}

/** When it was by the clock, where the log says so. */
function clock(detail: EventDetail | null): string {
  const said = detail?.fields["at"];
  const seconds = typeof said === "number" ? said : typeof said === "string" ? Date.parse(said) / 1000 : NaN;
  return Number.isFinite(seconds) && seconds > 1e8 ? ` (${moment(seconds)} UTC)` : "";
}

function Who({ n, detail }: { n: number; detail: EventDetail | null }) {
  const row = rowOf(n);
  const agents = trace.value!.about.agents;
  const from = row >= 0 ? columns.value!.agent[row]! : agents.findIndex((one) => one.name === detail?.fields["agent"]);
  const named = detail?.fields["recipient"] ?? detail?.fields["to"] ?? detail?.fields["target"];
  const to = typeof named === "string" ? agents.findIndex((one) => one.name === named) : -1;
  const time = row >= 0 ? columns.value!.t[row]! : null;
  return (
    <>
      {from >= 0 && <button type="button" class="plain" onClick={() => selectAgent(from)}>{agentName(from)}</button>}
      {to >= 0 && to !== from && <> → <button type="button" class="plain"
        onClick={() => selectAgent(to)}>{agentName(to)}</button></>}
      {time !== null && <span class="quiet"> at {span(time)}{clock(detail)}</span>}
    </>
  );
}

const TABS = { text: "Markdown and JSON, set for reading", plain: "The text, letter by letter", raw: "Every field of the event, as JSON" };

function Payload({ detail, onAll }: { detail: EventDetail; onAll: () => void }) {
  const [wanted, setTab] = useState<"text" | "plain" | "raw">("text");
  const tab = detail.text === null ? "raw" : wanted;
  const isResult = detail.fields["type"] === "tool_result";
  return (
    <div class="payload">
      <div class="row" role="group" aria-label="Payload">
        <h3>Payload</h3>
        {(["text", "plain", "raw"] as const).map((one) => (
          <button type="button" key={one} class="tab" aria-pressed={tab === one} disabled={one !== "raw" && detail.text === null}
            title={TABS[one]} onClick={() => setTab(one)}>{one}</button>
        ))}
      </div>
      {tab === "raw" ? <pre class="raw" tabIndex={0}>{JSON.stringify(detail.fields, null, 2)}</pre>
        : detail.text === null || detail.text === "" ? <p class="quiet">This event carries no text.</p>
          : tab === "plain" ? <pre class="text" tabIndex={0} dir="auto"><Plain text={detail.text} /></pre>
            : <div class="text" tabIndex={0} dir="auto" role="region" aria-label="What it says"><Rich text={detail.text} isResult={isResult} /></div>}
      {tab !== "raw" && detail.is_cut && (
        <p class="cut">[cut: {bytes(detail.text?.length ?? 0)} of {bytes(detail.text_size)}] <button type="button"
          onClick={onAll}>Load all</button></p>
      )}
    </div>
  );
}

const FEW = 6;

function Neighbours({ title, mark, all }: { title: string; mark: string; all: Neighbour[] }) {
  const [isAll, showAll] = useState(false);
  // Order in time alone is what the lane shows; here stands what had a reason. Where nothing else is known, time is better than
  // nothing.
  const reasons = all.filter((one) => one.edge !== "temporal");
  const list = reasons.length ? reasons : all;
  if (!list.length) return null;
  const shown = isAll ? list : list.slice(0, FEW);
  return (
    <div class="neighbours">
      <h3>{title} <span aria-hidden="true">{mark}</span></h3>
      <ul>
        {shown.map((one) => (
          <li key={`${one.n} ${one.edge}`}>
            <button type="button" class="plain" onClick={() => selectEvent(one.n)}>
              <span class={`glyph family-${familyOf(one.type)}`} aria-hidden="true">{glyphOf(one.type)}</span><span title={one.id}>{shortId(one.id)}</span>
            </button>
            <span>{one.type.replaceAll("_", " ")}</span> <span
              class="quiet">{agentName(one.agent)} · {one.edge.replaceAll("_", " ")}</span>
          </li>
        ))}
      </ul>
      {list.length > FEW && <button type="button" class="plain"
        onClick={() => showAll(!isAll)}>{isAll ? "fewer" : `and ${list.length - FEW} more`}</button>}
    </div>
  );
}

/** A value in one line; what is long or has parts is in the raw payload. */
function short(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

function Fields({ fields }: { fields: Record<string, unknown> }) {
  const known = Object.entries(fields).filter(([name, value]) => value !== null && name !== "text" && name !== "content");
  return (
    <details open>
      <summary>Fields ({known.length})</summary>
      <dl class="fields">
        {known.map(([name, value]) => <div key={name}><dt>{name}</dt><dd dir="auto">{short(value)}</dd></div>)}
      </dl>
    </details>
  );
}
