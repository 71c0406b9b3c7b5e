// Keys of the timeline. Always true: each does what its line in the table of commands says, here as everywhere.
import { onCommand } from "../keys";
import { columns, marked, rowOf, selectedAgent, selectedEvent, selectEvent, trace } from "../state";
import { beside, laneBeside, nearest } from "./events";
import * as model from "./model";
import type { Stage } from "./stage";
import { fit, pan, show, zoom } from "./view";

export function listenToCommands(stage: Stage): () => void {
  const zoomBy = (factor: number) => {
    const at = stage.pointer.x >= 0 ? stage.pointer.x / stage.width : placeOfSelection(stage) ?? 0.5;
    stage.look(zoom(stage.view, stage.extent, factor, at));
  };
  const ends = [
    onCommand("zoom-in", () => zoomBy(1.5)),
    onCommand("zoom-out", () => zoomBy(1 / 1.5)),
    onCommand("pan-left", () => stage.look(pan(stage.view, stage.extent, -0.15))),
    onCommand("pan-right", () => stage.look(pan(stage.view, stage.extent, 0.15))),
    onCommand("fit", () => fitNext(stage)),
    onCommand("mark", () => mark(stage)),
    onCommand("event-next", () => step(stage, 1)),
    onCommand("event-previous", () => step(stage, -1)),
    onCommand("lane-up", () => stepLane(stage, -1)),
    onCommand("lane-down", () => stepLane(stage, 1)),
  ];
  return () => ends.forEach((end) => end());
}

/** Where the selected event begins, 0 left to 1 right; null when it is not in sight. */
function placeOfSelection({ view }: Stage): number | null {
  const row = rowOf(selectedEvent.value);
  const s = row >= 0 ? model.placed.value?.from[row] : undefined;
  return s !== undefined && s >= view.s0 && s <= view.s1 ? (s - view.s0) / (view.s1 - view.s0) : null;
}

/** Everything; pressed when everything is seen, the marked range or the selected event. */
export function fitNext(stage: Stage): void {
  const whole = fit(stage.extent);
  const isAll = Math.abs(stage.view.s1 - stage.view.s0 - (whole.s1 - whole.s0)) < 1e-6 * (whole.s1 - whole.s0);
  const map = model.map.value;
  const row = rowOf(selectedEvent.value);
  const where = model.placed.value;
  if (isAll && map && marked.value) {
    const [from, to] = marked.value;
    return stage.look(show(stage.view, stage.extent, map.fold(from), map.fold(to)));
  }
  if (isAll && where && row >= 0) {
    const long = Math.max(where.to[row]! - where.from[row]!, stage.extent.length / 500);
    return stage.look(show(stage.view, stage.extent, where.from[row]! - long, where.to[row]! + long));
  }
  stage.fitAll();
}

/** Marks what is on the screen; what is marked already is let go. */
export function mark(stage: Stage): void {
  const [map, about] = [model.map.value, trace.value?.about];
  if (!map || !about) return;
  const from = Math.max(about.start, map.unfold(stage.view.s0));
  const to = Math.min(about.end, map.unfold(stage.view.s1));
  const is = marked.value;
  marked.value = is && Math.abs(is[0] - from) + Math.abs(is[1] - to) < (to - from) * 1e-3 ? null : [from, to];
}

function go(row: number): void {
  const at = columns.value;
  if (at && row >= 0) selectEvent(at.numbers?.[row] ?? row);
}

/** The lane that keys start from: of the selected event or agent, else the first with events. */
function laneNow(): number {
  const [at, lanes, index] = [columns.value, model.lanes.value, model.index.value];
  if (!at || !lanes || !index) return -1;
  const row = rowOf(selectedEvent.value);
  const lane = lanes.ofAgent[row >= 0 ? at.agent[row]! : selectedAgent.value] ?? -1;
  return lane >= 0 ? lane : laneBeside(index, -1, 1);
}

function step(stage: Stage, by: 1 | -1): void {
  const [index, placed] = [model.index.value, model.placed.value];
  const lane = laneNow();
  if (!index || !placed || lane < 0) return;
  const row = rowOf(selectedEvent.value);
  go(row >= 0 ? beside(index, placed, lane, row, by) : nearest(index, placed, lane, by > 0 ? stage.view.s0 : stage.view.s1));
}

function stepLane(stage: Stage, by: 1 | -1): void {
  const [index, placed] = [model.index.value, model.placed.value];
  const from = laneNow();
  if (!index || !placed || from < 0) return;
  const row = rowOf(selectedEvent.value);
  const lane = row < 0 && selectedAgent.value < 0 ? from : laneBeside(index, from, by);
  const s = row >= 0 ? placed.from[row]! : (stage.view.s0 + stage.view.s1) / 2;
  if (lane >= 0) go(nearest(index, placed, lane, s));
}
