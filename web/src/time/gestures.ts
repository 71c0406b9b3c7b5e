// Pointer and wheel. Always true: a drag pans, with Shift it marks a range; the wheel zooms where the pointer is, with Shift or
// sideways it pans; on the overview a drag chooses what is seen.
import { batch } from "@preact/signals";
import { columns, hover, marked, selectAgent, selectEvent } from "../state";
import { RULER } from "./draw";
import * as model from "./model";
import type { Stage } from "./stage";
import { clamp, fit, pan, zoom } from "./view";

const CLICK_PX = 4;

/** Pixels of a wheel turn, whatever unit the browser counts in. */
function wheelPixels(event: WheelEvent): [number, number] {
  const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
  return [event.deltaX * unit, event.deltaY * unit];
}

export function listenOnLanes(stage: Stage, element: HTMLElement): () => void {
  let drag: { x: number; y: number; s: number; isMark: boolean; moved: boolean } | null = null;
  const at = (event: MouseEvent): [number, number] => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top - RULER];
  };
  const onWheel = (event: WheelEvent): void => {
    event.preventDefault();
    const [dx, dy] = wheelPixels(event);
    const sideways = event.shiftKey ? dy || dx : Math.abs(dx) > Math.abs(dy) ? dx : 0;
    if (event.altKey) stage.look(pan(stage.view, stage.extent, 0, dy));
    else if (sideways) stage.look(pan(stage.view, stage.extent, sideways / stage.width));
    else stage.look(zoom(stage.view, stage.extent, Math.exp(-dy / 400), at(event)[0] / stage.width));
  };
  const onDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const [x, y] = at(event);
    element.setPointerCapture(event.pointerId);
    drag = { x, y, s: stage.timeAt(x), isMark: event.shiftKey, moved: false };
  };
  const onMove = (event: PointerEvent): void => {
    const [x, y] = at(event);
    stage.pointer = { x, y };
    if (!drag) return point(stage, x, y);
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > CLICK_PX) drag.moved = true;
    if (!drag.moved) return;
    if (drag.isMark) return markTo(stage, drag.s, stage.timeAt(x));
    stage.look(pan(stage.view, stage.extent, (drag.x - x) / stage.width, drag.y - y));
    [drag.x, drag.y] = [x, y];
  };
  const onUp = (event: PointerEvent): void => {
    const [x, y] = at(event);
    if (drag && !drag.moved) choose(stage, x, y);
    drag = null;
  };
  const onLeave = (): void => {
    stage.pointer = { x: -1, y: -1 };
    hover.value = { event: -1, agent: -1 };
    stage.pointed();
  };
  element.addEventListener("wheel", onWheel, { passive: false });
  element.addEventListener("pointerdown", onDown);
  element.addEventListener("pointermove", onMove);
  element.addEventListener("pointerup", onUp);
  element.addEventListener("pointercancel", () => { drag = null; });
  element.addEventListener("pointerleave", onLeave);
  return () => {
    element.removeEventListener("wheel", onWheel);
    element.removeEventListener("pointerdown", onDown);
    element.removeEventListener("pointermove", onMove);
    element.removeEventListener("pointerup", onUp);
    element.removeEventListener("pointerleave", onLeave);
  };
}

/** The agent of a lane that stands for one. */
function soleAgent(lane: number): number {
  const found = model.lanes.value?.list[lane];
  return found?.agents.length === 1 ? found.agents[0]! : -1;
}

function point(stage: Stage, x: number, y: number): void {
  const row = stage.eventAt(x, y);
  const at = columns.value;
  const event = row >= 0 && at ? at.numbers?.[row] ?? row : -1;
  const agent = row >= 0 && at ? at.agent[row]! : soleAgent(stage.laneAt(y));
  if (hover.value.event !== event || hover.value.agent !== agent) hover.value = { event, agent };
  stage.pointed();
}

function choose(stage: Stage, x: number, y: number): void {
  const row = stage.eventAt(x, y);
  const at = columns.value;
  if (row >= 0 && at) return selectEvent(at.numbers?.[row] ?? row);
  const agent = soleAgent(stage.laneAt(y));
  batch(() => {
    selectEvent(-1);
    selectAgent(agent);
  });
}

function markTo(stage: Stage, a: number, b: number): void {
  const map = model.map.value;
  if (map) marked.value = [map.unfold(Math.min(a, b)), map.unfold(Math.max(a, b))];
  stage.pointed();
}

export function listenOnOverview(stage: Stage, element: HTMLElement): () => void {
  let drag: { s: number; isMove: boolean; offset: number } | null = null;
  const timeAt = (event: PointerEvent): number => {
    const box = element.getBoundingClientRect();
    const whole = fit(stage.extent);
    return whole.s0 + ((event.clientX - box.left) / box.width) * (whole.s1 - whole.s0);
  };
  const onDown = (event: PointerEvent): void => {
    const s = timeAt(event);
    element.setPointerCapture(event.pointerId);
    const { s0, s1 } = stage.view;
    const isAll = s1 - s0 > 0.98 * (fit(stage.extent).s1 - fit(stage.extent).s0);
    drag = { s, isMove: !isAll && s >= s0 && s <= s1, offset: s - s0 };
  };
  const onMove = (event: PointerEvent): void => {
    if (!drag) return;
    const s = timeAt(event);
    const width = stage.view.s1 - stage.view.s0;
    if (drag.isMove) stage.look({ ...stage.view, s0: s - drag.offset, s1: s - drag.offset + width });
    else if (s !== drag.s) stage.look({ ...stage.view, s0: Math.min(s, drag.s), s1: Math.max(s, drag.s) });
  };
  const onUp = (event: PointerEvent): void => {
    const s = timeAt(event);
    if (drag && !drag.isMove && s === drag.s) {
      const half = (stage.view.s1 - stage.view.s0) / 2;
      stage.look(clamp({ ...stage.view, s0: s - half, s1: s + half }, stage.extent));
    }
    drag = null;
  };
  const onWheel = (event: WheelEvent): void => {
    event.preventDefault();
    stage.look(zoom(stage.view, stage.extent, Math.exp(-wheelPixels(event)[1] / 400), 0.5));
  };
  element.addEventListener("pointerdown", onDown);
  element.addEventListener("pointermove", onMove);
  element.addEventListener("pointerup", onUp);
  element.addEventListener("wheel", onWheel, { passive: false });
  return () => {
    element.removeEventListener("pointerdown", onDown);
    element.removeEventListener("pointermove", onMove);
    element.removeEventListener("pointerup", onUp);
    element.removeEventListener("wheel", onWheel);
  };
}
