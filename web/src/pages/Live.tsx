// What is running now. Always true: what is on the screen stays when the server is gone, with a word that it is; silence beyond a
// minute is an alert; paused means that nothing on the screen moves, and says how much has come since.
import { useEffect, useRef, useState } from "preact/hooks";
import { onCommand } from "../keys";
import { useListKeys } from "../listkeys";
import { Command } from "../loaded";
import { agentsNow, doing, NOTHING, openEvents, type Picture, SILENT_S, silence, taken, type LiveEvent } from "../livestate";
import { count, span } from "../numbers";
import { familyOf, glyphOf } from "../palette";
import { Plain } from "../plaintext";
import { traceLink } from "../router";
import { Link } from "../shell/Link";
import { Empty } from "../shell/states";
import type { LiveTrace } from "../shapes.gen";
import { isFollowing, source } from "../state";
import { Windowed } from "../windowed";
import { Steer } from "./Steer";
import "./pages.css";

const DRAW_MS = 200;
const SPEAK_MS = 5000;

interface Stream {
  picture: Picture;
  state: "waiting" | "open" | "lost";
  /** Events that came while it was paused. */
  missed: number;
  now: number;
}

const clock = () => Date.now() / 1000;

/** Gathers batches as they come and draws a few times a second: a fast stream must not draw for every batch. */
function useStream(): Stream {
  const kept = useRef<Stream>({ picture: NOTHING, state: "waiting", missed: 0, now: clock() });
  const [shown, setShown] = useState(kept.current);
  useEffect(() => {
    isFollowing.value = true;
    const end = source.value!.live(-1, (batch) => {
      const now = kept.current;
      const news = Object.values(batch.events).reduce((sum, rows) => sum + rows.length, 0);
      kept.current = { ...now, picture: taken(now.picture, batch, clock()), missed: isFollowing.peek() ? 0 : now.missed + news };
    }, (state) => { kept.current = { ...kept.current, state }; });
    const timer = setInterval(() => {
      kept.current = { ...kept.current, now: clock() };
      setShown((old) => {
        if (!isFollowing.peek()) return { ...old, state: kept.current.state, missed: kept.current.missed };
        kept.current = { ...kept.current, missed: 0 };
        return kept.current;
      });
    }, DRAW_MS);
    return () => { end(); clearInterval(timer); isFollowing.value = false; };
  }, []);
  return shown;
}

export default function Live() {
  const stream = useStream();
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => onCommand("follow", () => (isFollowing.value = !isFollowing.value)), []);
  const { picture, now } = stream;
  const cursor = useListKeys(box, picture.traces.length + Math.min(MOST_OPEN, openEvents(picture, now).length), "live");
  if (source.value!.kind
    === "file") return <Empty title="A file has no live view."><Command text="counterpoint view" /></Empty>;
  return (
    <div class="page live">
      <header class="page-head">
        <h1>Live</h1>
        <button type="button" aria-pressed={isFollowing.value} onClick={() => (isFollowing.value = !isFollowing.value)}>
          {isFollowing.value ? "Pause" : "Follow"} <kbd>Space</kbd></button>
        <State stream={stream} />
        <Spoken stream={stream} />
      </header>
      {picture.traces.length === 0 && picture.events.length === 0 ? <Quiet state={stream.state} /> : (
        <>
          <Now picture={picture} now={now} />
          <div class="live-body" ref={box}>
            <Running picture={picture} now={now} at={cursor.at} />
            <Open picture={picture} now={now} at={cursor.at - picture.traces.length} />
            <Steer picture={picture} now={now} />
          </div>
          <Events events={picture.events} />
        </>
      )}
    </div>
  );
}

function State(props: { stream: Stream }) {
  const { state, missed } = props.stream;
  if (state === "lost") return <span class="badge warn">Reconnecting… what was received last stays</span>;
  if (state === "waiting") return <span class="quiet">connecting…</span>;
  return isFollowing.value ? <span class="badge">● live</span>
    : <span class="badge warn">paused{missed > 0 && ` · ${count(missed, "event")} since`}</span>;
}

/** For screen readers, at most every five seconds. */
function Spoken(props: { stream: Stream }) {
  const [said, setSaid] = useState("");
  const latest = useRef(props.stream);
  latest.current = props.stream;
  useEffect(() => {
    const timer = setInterval(() => {
      const { picture, now } = latest.current;
      const { running, silent } = agentsNow(picture, now);
      setSaid(`${count(picture.traces.length, "trace")} running, ${count(running, "agent")} at work, ${silent} silent`);
    }, SPEAK_MS);
    return () => clearInterval(timer);
  }, []);
  return <span class="hidden" aria-live="polite">{said}</span>;
}

function Quiet(props: { state: string }) {
  return (
    <Empty title={props.state === "waiting" ? "Connecting…" : "Nothing is running."}>
      <p>Traces appear here while they are written. A team of fakes, at the pace of real models:</p>
      <Command text="counterpoint play --task T1 --topology swarm --model fake --model-set pace=real" />
      <p>Coding sessions, as they go on:</p>
      <Command text="counterpoint import --follow" />
      <p>Programs that send OpenTelemetry:</p>
      <Command text="counterpoint serve" />
    </Empty>
  );
}

function Now(props: { picture: Picture; now: number }) {
  const { running, waiting, silent } = agentsNow(props.picture, props.now);
  return (
    <p class="agents-now">Agents now: <strong>{running} running</strong> · {" "}
      {silent > 0 ? <span class="badge warn">⚠ {silent} in one call for more than {SILENT_S} s: at work or stuck</span> : "0 silent"} · {waiting} waiting</p>
  );
}

/** J and K go through the traces, then through the open events; Enter opens the line. */
function Running(props: { picture: Picture; now: number; at: number }) {
  return (
    <section aria-label="Running traces">
      <h2>Traces</h2>
      <div class="scroll"><table class="wide">
        <thead><tr><th scope="col">trace</th><th scope="col" class="number">agents</th><th scope="col" class="number">events</th>
          <th scope="col" class="number">at</th><th scope="col">last event</th></tr></thead>
        <tbody>{props.picture.traces.map((trace, i) =>
          <Trace key={trace.id} trace={trace} row={i} isAt={i === props.at} silent={silence(trace, props.picture, props.now)} />)}</tbody>
      </table></div>
    </section>
  );
}

function Trace(props: { trace: LiveTrace; row: number; isAt: boolean; silent: number }) {
  const { trace, silent } = props;
  return (
    <tr class={props.isAt ? "is-at" : ""} data-row={props.row}>
      <td><Link to={traceLink(trace.id)} title={trace.id}><bdi>{trace.title ?? trace.id}</bdi>
        {trace.title && !isOpaque(trace.id) && <span class="quiet"> <bdi>{trace.id}</bdi></span>}</Link></td>
      <td class="number">{trace.agents.toLocaleString("en")}</td><td class="number">{trace.events.toLocaleString("en")}</td>
        <td class="number">{span(trace.last_t)}</td>
      <td>{silent > SILENT_S ? <span class="badge warn">⚠ silent {span(Math.round(silent))}</span>
        : <span class="quiet">{span(Math.round(silent))} ago</span>}</td>
    </tr>
  );
}

/** Whether an id is a number that only a machine reads. */
const isOpaque = (id: string): boolean => /^(?:[a-z_]{1,8}[-_:.])?(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{6,}$/i.test(id);

const MOST_OPEN = 100;

function Open(props: { picture: Picture; now: number; at: number }) {
  const all = openEvents(props.picture, props.now);
  return (
    <section aria-label="Open events">
      <h2>Open events <span class="quiet">started, not finished</span></h2>
      {!all.length && <p class="quiet">None.</p>}
      {all.length > 0 && <div class="scroll"><table class="wide">
        <thead><tr><th scope="col">agent</th><th scope="col">doing</th><th scope="col" class="number">for</th></tr></thead>
        <tbody>{all.slice(0, MOST_OPEN).map((one, i) => (
          <tr key={`${one.trace}/${one.id}`} class={i === props.at ? "is-at" : ""} data-row={props.picture.traces.length + i}>
            <td><Link to={traceLink(one.trace, { event: one.id })} title={one.agent}><bdi>{one.name || "–"}</bdi></Link>
              {props.picture.traces.length > 1 && <span class="quiet"> of <bdi>{one.title}</bdi></span>}</td>
              <td><bdi>{one.what}</bdi></td>
            <td class="number">
              {one.age !== null && one.age > SILENT_S ? <span class="badge warn">⚠ {span(Math.round(one.age))}</span>
                : span(one.age === null ? null : Math.round(one.age))}</td>
          </tr>
        ))}</tbody>
      </table></div>}
      {all.length > MOST_OPEN && <p class="quiet">and {all.length - MOST_OPEN} more, started later</p>}
    </section>
  );
}

function Events(props: { events: LiveEvent[] }) {
  return (
    <section class="live-events" aria-label="Latest events">
      <h2>Latest events</h2>
      <Windowed label="Latest events" listKey="live" count={props.events.length} estimate={28} stick={isFollowing.value}
        render={(i) => <Event told={props.events[i]!} />} />
    </section>
  );
}

function Event(props: { told: LiveEvent }) {
  const { trace, fields } = props.told;
  const get = (name: string) => (typeof fields[name] === "string" ? fields[name] : "");
  const isOpen = fields["open"] === true;
  const now = doing(get("type"), get("tool"));
  const type = isOpen && now === "thinking" ? now : get("type");
  return (
    <div class="live-event">
      <span class={`glyph family-${familyOf(type)}`} aria-hidden="true">{glyphOf(type)}</span>
      <Link to={traceLink(trace, { event: get("id") || null })}><bdi>{get("agent") || "–"}</bdi></Link>
      <span>{type.replaceAll("_", " ")} <bdi>{get("tool")}</bdi>{isOpen && " …"}</span>
      <span class="quiet one-line"><Plain text={get("text").slice(0, 300)} /></span>
    </div>
  );
}
