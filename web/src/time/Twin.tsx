// The timeline as a table: the same events, the same selection, for those who read rather than look.
import { useMemo } from "preact/hooks";
import { compact, count, span } from "../numbers";
import { glyphOf } from "../palette";
import { FLAGS } from "../shapes.gen";
import { agentName, columns, eventName, rowOf, selectedEvent, selectEvent, trace } from "../state";
import { Windowed } from "../windowed";
import { rowsBetween } from "./events";
import { isWhole } from "./large";
import * as model from "./model";
import type { Stage } from "./stage";
import { tickLabel } from "./view";

/** What the flags of an event say, in words. */
export function flagWords(flags: number): string[] {
  const words: [number, string][] = [
    [FLAGS.failed, "failed"], [FLAGS.open, "open"], [FLAGS.untrusted, "untrusted"], [FLAGS.tainted, "tainted"],
    [FLAGS.on_path, "critical path"], [FLAGS.human, "human"], [FLAGS.safety, "safety"], [FLAGS.unlinked, "unlinked"],
  ];
  return words.filter(([bit]) => flags & bit).map(([, word]) => word);
}

function Row({ row }: { row: number }) {
  const at = columns.value!;
  const n = at.numbers?.[row] ?? row;
  const type = trace.value?.about.types[at.type[row]!] ?? "unknown";
  const tool = trace.value?.about.tools[at.tool[row]! - 1] ?? "";
  const marks = flagWords(at.flags[row]!).join(", ");
  const isChosen = selectedEvent.value === n;
  return (
    <div role="row" class={`twin-row${isChosen ? " chosen" : ""}`} aria-selected={isChosen}>
      <span role="cell">
        <button type="button" class="plain" aria-pressed={isChosen} onClick={() => selectEvent(n)}>{eventName(n)}</button>
      </span>
      <span role="cell">{tickLabel(at.t[row]!, 0.1)}</span>
      <span role="cell">{span(at.dur[row]!)}</span>
      <span role="cell" title={agentName(at.agent[row]!)}>{agentName(at.agent[row]!)}</span>
      <span role="cell"><span aria-hidden="true">{glyphOf(type)}</span> {type.replaceAll("_", " ")}</span>
      <span role="cell" title={tool}>{tool}</span>
      <span role="cell">{at.tokens[row]! > 0 ? compact(at.tokens[row]!) : ""}</span>
      <span role="cell" title={marks}>{marks}</span>
    </div>
  );
}

const HEADS = ["Event", "Time", "Lasted", "Agent", "Kind", "Tool", "Tokens", "Marks"];

export function Twin({ stage }: { stage: Stage }) {
  const view = stage.settled.value;
  const [map, index, placed, lanes] = [model.map.value, model.index.value, model.placed.value, model.lanes.value];
  const rows = useMemo(
    () => (view && index && placed && lanes ? rowsBetween(index, placed, lanes.list.map((_, i) => i), view.s0, view.s1) : []),
    [view, index, placed, lanes],
  );
  const timeAt = (s = 0) => tickLabel(map?.unfold(s) ?? 0, 0.1);
  const chosen = rowOf(selectedEvent.value);
  const show = useMemo(() => ({ row: rows.indexOf(chosen) }), [rows, chosen]);
  if (view && map && !isWhole(map.unfold(view.s0), map.unfold(view.s1))) {
    return <p class="quiet">There are too many events in this range for a list: zoom in (W) or search (/).</p>;
  }
  return (
    <div class="twin" role="table" aria-label="Events in sight" aria-rowcount={rows.length + 1}>
      <p class="quiet">{count(rows.length, "event")} between {timeAt(view?.s0)} and {timeAt(view?.s1)}</p>
      <div role="rowgroup">
        <div role="row" class="twin-row twin-head">{HEADS.map((head) => <span role="columnheader" key={head}>{head}</span>)}</div>
      </div>
      <Windowed count={rows.length} estimate={24} label="Events in sight" isTable show={show}
        listKey={`${view?.s0} ${view?.s1} ${rows.length}`} render={(i) => <Row row={rows[i]!} />} />
    </div>
  );
}
