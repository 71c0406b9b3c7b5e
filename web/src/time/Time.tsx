// The timeline: overview, lanes, legend, and the same as a table. Always true: everything a pointer can do a key or a button
// can too.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { compact, count, money, signed, span } from "../numbers";
import {
  agentName, colourBy, columns, eventName, groupBy, marked, method, rowOf, selectedEvent, trace, type ColourBy,
  type GroupBy,
} from "../state";
import { COLOUR_BY } from "./colour";
import { fitNext, listenToCommands, mark } from "./commands";
import { RULER } from "./draw";
import { follow, note } from "./follow";
import { listenOnLanes, listenOnOverview } from "./gestures";
import { Labels } from "./Labels";
import { isWhole, windowProblem } from "./large";
import { Legend } from "./Legend";
import { MINIMAP } from "./minimap";
import * as model from "./model";
import { Stage, type Rows } from "./stage";
import { Tip } from "./Tip";
import { totalsOf } from "./totals";
import { Twin } from "./Twin";
import { tickLabel, zoom } from "./view";
import "./time.css";

function Choice<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: readonly T[]; onChange: (value: T) => void;
}) {
  return (
    <label class="time-choice">
      {label} <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map((option) => <option key={option} value={option}>{option}</option>)}
      </select>
    </label>
  );
}

function Bar({ stage }: { stage: Stage | null }) {
  const act = (run: (stage: Stage) => void) => () => { if (stage) run(stage); };
  const zoomBy = (factor: number) => act((at) => at.look(zoom(at.view, at.extent, factor, 0.5)));
  return (
    <div class="time-bar">
      <Choice label="colour" value={colourBy.value} options={COLOUR_BY} onChange={(by: ColourBy) => { colourBy.value = by; }} />
      <Choice label="group" value={groupBy.value} options={["agent", "role", "depth"]}
        onChange={(by: GroupBy) => { groupBy.value = by; }} />
      <Choice label="rows" value={stage?.rows.value ?? "roomy"} options={["roomy", "dense", "all"]}
        onChange={(rows: Rows) => { if (stage) stage.rows.value = rows; }} />
      <span class="time-buttons" role="group" aria-label="Zoom">
        <button type="button" title="Zoom out (S)" aria-label="Zoom out" onClick={zoomBy(1 / 1.5)}>−</button>
        <button type="button" title="Zoom in (W)" aria-label="Zoom in" onClick={zoomBy(1.5)}>+</button>
        <button type="button" title="Fit everything, or the selection (F)" onClick={act(fitNext)}>Fit</button>
        <button type="button" title="Mark the range on the screen (M); or drag with Shift" onClick={act(mark)}>Mark</button>
      </span>
      {stage && <State stage={stage} />}
    </div>
  );
}

function State({ stage }: { stage: Stage }) {
  const isExact = stage.isExact.value;
  const about = trace.value?.about;
  const afar = isExact ? "" : "Overview: how busy each lane was. Zoom in (W) to see events.";
  const text = windowProblem.value ?? note(isExact) ?? afar;
  const said = about?.events === 0 ? "This trace has no events." : text;
  return <span class="time-state quiet" role="status" title={said}>{said}</span>;
}

function Marked() {
  const range = marked.value;
  const at = columns.value;
  const credit = model.creditByRow.value;
  const totals = useMemo(() => (range && at ? totalsOf(at, range[0], range[1], credit) : null), [range, at, credit]);
  if (!range) return null;
  const [from, to] = range;
  const parts: ComponentChildren[] = [<b key="range">{tickLabel(from, 0.1)} to {tickLabel(to, 0.1)} · {span(to - from)}</b>];
  if (totals && isWhole(range[0], range[1])) {
    parts.push(count(totals.events, "event"), count(totals.agents, "agent"), `${compact(totals.tokens)} tokens`);
    parts.push(totals.cost > 0 ? `${totals.isLeast ? "at least " : ""}${money(totals.cost)}` : "no known cost");
    if (totals.credit !== null) parts.push(`${method.value ?? "credit"} ${signed(totals.credit)}`);
    if (totals.failed) parts.push(`${totals.failed} failed`);
    if (totals.tainted) parts.push(`${totals.tainted} tainted`);
  } else parts.push("zoom in for its sums");
  return (
    <p class="time-marked" role="status">
      {parts.map((part, i) => <span key={i}>{part}</span>)}
      <button type="button" class="plain" onClick={() => { marked.value = null; }}>clear</button>
    </p>
  );
}

/** The selected event in words, for screen readers. */
function Spoken() {
  const n = selectedEvent.value;
  const row = rowOf(n);
  const at = columns.value;
  const type = row >= 0 && at ? (trace.value?.about.types[at.type[row]!] ?? "unknown").replaceAll("_", " ") : "";
  const text = row >= 0 && at ? `${eventName(n)}, ${type}, ${agentName(at.agent[row]!)}, at ${tickLabel(at.t[row]!, 0.1)}` : "";
  return <p class="hidden" aria-live="polite">{text}</p>;
}

function TwinPanel({ stage }: { stage: Stage }) {
  const [isOpen, open] = useState(false);
  return (
    <details class="time-twin" onToggle={(event) => open(event.currentTarget.open)}>
      <summary>Events on the screen as a table</summary>
      {isOpen && <Twin stage={stage} />}
    </details>
  );
}

/** The canvases get their stage once they are in the page. */
function useStage() {
  const base = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const mini = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const sight = useRef<HTMLDivElement>(null);
  const [stage, setStage] = useState<Stage | null>(null);
  useLayoutEffect(() => {
    const made = new Stage({ base: base.current!, over: over.current!, mini: mini.current!, scroller: scroller.current! });
    const fitSize = () => {
      const height = scroller.current!.clientHeight;
      sight.current!.style.height = `${height}px`; // it stays in sight while the names scroll
      made.resize(sight.current!.clientWidth, height);
    };
    fitSize();
    const sizes = new ResizeObserver(fitSize);
    sizes.observe(scroller.current!);
    const onScroll = () => {
      const top = scroller.current!.scrollTop;
      if (Math.abs(top - made.view.top) >= 1) made.look({ ...made.view, top });
    };
    scroller.current!.addEventListener("scroll", onScroll, { passive: true });
    const ends = [
      follow(made), listenOnLanes(made, sight.current!), listenOnOverview(made, mini.current!), () => sizes.disconnect(),
      () => made.stop(),
    ];
    setStage(made);
    return () => ends.forEach((end) => end());
  }, []);
  useEffect(() => {
    if (!stage) return;
    // The last listener wins, and the page around this one listens to some of these keys too: it has begun by then.
    let end: (() => void) | null = null;
    const later = setTimeout(() => { end = listenToCommands(stage); });
    return () => {
      clearTimeout(later);
      end?.();
    };
  }, [stage]);
  return { base, over, mini, scroller, sight, stage };
}

export default function Time() {
  const { base, over, mini, scroller, sight, stage } = useStage();
  const lanes = model.lanes.value?.list.length ?? 0;
  const about = trace.value?.about;
  const height = stage ? lanes * stage.tall.value + RULER : 0;
  const holds = about ? `: ${count(about.events, "event")} in ${count(lanes, "lane")}, ${span(about.end - about.start)}` : "";
  const says = `Timeline${holds}. The table below has the same events.`;
  return (
    <section class="time" aria-label="Time">
      <Bar stage={stage} />
      <div class="time-top">
        <span class="time-corner quiet">{count(about?.agents.filter((one) => !one.is_outside).length ?? 0, "agent")}</span>
        <canvas ref={mini} class="time-mini" style={{ height: `${MINIMAP}px` }} role="img"
          aria-label="Overview of the whole trace; drag to choose what is shown" />
      </div>
      <div ref={scroller} class="time-scroll">
        <div class="time-all" style={{ minHeight: "100%", height: `${height}px` }}>
          <div class="time-side">
            <div class="time-head quiet" style={{ height: `${RULER}px` }}>{groupBy.value}</div>
            {stage && <Labels stage={stage} />}
          </div>
          <div ref={sight} class="time-sight">
            <canvas ref={base} role="img" tabIndex={0} aria-label={says} />
            <canvas ref={over} aria-hidden="true" />
            {stage && <Tip stage={stage} />}
          </div>
        </div>
      </div>
      <Marked />
      <Legend />
      {stage && <TwinPanel stage={stage} />}
      <Spoken />
    </section>
  );
}
