// Names of the lanes, beside them. Always true: a fold is a button that says whether it is open; a name that is cut is whole in
// its title.
import { TAINT_GLYPH } from "../palette";
import { hover, selectAgent, selectedAgent } from "../state";
import { labelOf, type Lane } from "./lanes";
import * as model from "./model";
import type { Stage } from "./stage";

const BEYOND = 6;

function toggle(key: string): void {
  const next = new Set(model.opened.value);
  if (!next.delete(key)) next.add(key);
  model.opened.value = next;
}

function Label({ lane, at, height }: { lane: Lane; at: number; height: number }) {
  const isTainted = lane.agents.some((agent) => model.taintedAgents.value.has(agent));
  const taint = isTainted && <span class="time-taint" title="content from outside may have reached it"> {TAINT_GLYPH}</span>;
  const style = { top: `${at * height}px`, height: `${height}px`, paddingLeft: `${4 + Math.min(lane.indent, 6) * 10}px` };
  if (lane.fold !== "none") {
    return (
      <li class="time-label" style={style}>
        <button type="button" aria-expanded={lane.fold === "open"} onClick={() => toggle(lane.key)}
          title={`${labelOf(lane)}: ${lane.fold === "open" ? "fold" : "show each"}`}>
          <span aria-hidden="true">{lane.fold === "open" ? "▾" : "▸"}</span><span class="time-name">{lane.name}</span>
          <span class="time-count">×{lane.count.toLocaleString("en")}</span>{taint}
        </button>
      </li>
    );
  }
  const agent = lane.agents[0]!;
  const isChosen = selectedAgent.value === agent;
  return (
    <li class={`time-label${isChosen ? " chosen" : ""}${hover.value.agent === agent ? " met" : ""}`} style={style}>
      <button type="button" aria-pressed={isChosen} title={lane.name} onClick={() => selectAgent(agent)}
        onPointerEnter={() => { hover.value = { event: -1, agent }; }}
        onPointerLeave={() => { hover.value = { event: -1, agent: -1 }; }}>
        <span class="time-name">{lane.name}</span>{taint}
      </button>
    </li>
  );
}

export function Labels({ stage }: { stage: Stage }) {
  const list = model.lanes.value?.list ?? [];
  const [first, end] = stage.sight.value;
  const height = stage.tall.value;
  if (height < 11) return <p class="time-many">{list.length} lanes</p>;
  const from = Math.max(0, first - BEYOND);
  return (
    <ul class={`time-names${height < 20 ? " dense" : ""}`} aria-label="Lanes">
      {list.slice(from, end + BEYOND).map((lane, i) => <Label key={lane.key} lane={lane} at={from + i} height={height} />)}
    </ul>
  );
}
