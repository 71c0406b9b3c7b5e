// What is drawn and where, before anything is drawn. Always true: at most `EXACT` events are planned as rectangles; beyond that
// the caller paints strips. A rectangle is at least `LEAST` pixels wide, and one that would cover its neighbour of the same
// class and place is left out, so the cost is that of pixels.
import { runOf, type LaneIndex, type Placed } from "./events";
import type { Lanes } from "./lanes";
import type { View } from "./view";

export const EXACT = 12_000;
export const LEAST = 2.5;
/** Pixels above and below the bars of a lane. */
export const MARGIN = 3;
/** A bar in a lane of its own is no taller, however tall the lane. */
const THICKEST = 38;

export interface Plan {
  n: number;
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  row: Uint32Array;
  cls: Uint8Array;
}

export interface Scene {
  lanes: Lanes;
  index: LaneIndex;
  placed: Placed;
  agent: Uint32Array;
  classes: Uint8Array;
  view: View;
  /** Pixels. */
  width: number;
  height: number;
  rowHeight: number;
}

export function emptyPlan(): Plan {
  const real = () => new Float32Array(EXACT);
  return { n: 0, x: real(), y: real(), w: real(), h: real(), row: new Uint32Array(EXACT), cls: new Uint8Array(EXACT) };
}

/** First lane in sight, and the one after the last. */
export function lanesInSight(view: View, height: number, rowHeight: number, count: number): [first: number, end: number] {
  return [Math.max(0, Math.floor(view.top / rowHeight)), Math.min(count, Math.ceil((view.top + height) / rowHeight))];
}

/** Where the bars of a track lie in their lane: all of it alone, a slice among several. */
export function band(rowHeight: number, slot: number, count: number): [offset: number, height: number] {
  const margin = rowHeight >= 10 ? MARGIN : rowHeight >= 4 ? 1 : 0;
  const room = rowHeight - 2 * margin;
  if (count <= 1) return room > THICKEST ? [(rowHeight - THICKEST) / 2, THICKEST] : [margin, room];
  const each = room / count;
  return [margin + slot * each, Math.max(each >= 3 ? each - 1 : each, 1)];
}

/** Fills a plan with the rectangles in sight. Gives false when there are too many. */
export function planExact(scene: Scene, plan: Plan): boolean {
  const { view, lanes, index, placed, rowHeight } = scene;
  const [first, end] = lanesInSight(view, scene.height, rowHeight, lanes.list.length);
  plan.n = 0;
  let total = 0;
  for (let lane = first; lane < end; lane++) {
    const [low, high] = runOf(index, placed, lane, view.s0, view.s1);
    total += high - low;
    if (total > EXACT) return false;
  }
  for (let lane = first; lane < end; lane++) planLane(scene, lane, plan);
  return true;
}

function planLane(scene: Scene, lane: number, plan: Plan): void {
  const { view, lanes, index, placed, rowHeight } = scene;
  const [low, high] = runOf(index, placed, lane, view.s0, view.s1);
  const perSecond = scene.width / (view.s1 - view.s0);
  const top = lane * rowHeight - view.top;
  const count = lanes.list[lane]!.tracks;
  let lastX = -1e9;
  let lastKey = -1;
  for (let k = low; k < high; k++) {
    const row = index.order[k]!;
    const to = placed.to[row]!;
    if (to < view.s0) continue;
    const left = Math.max(-10, (placed.from[row]! - view.s0) * perSecond);
    const right = Math.min(scene.width + 10, (to - view.s0) * perSecond);
    const width = Math.max(LEAST, right - left - 0.5);
    const slot = lanes.slot[scene.agent[row]!]!;
    const cls = scene.classes[row]!;
    const key = slot * 256 + cls;
    if (key === lastKey && left - lastX < 0.75 && width <= LEAST) continue;
    lastX = left;
    lastKey = key;
    const [offset, tall] = band(rowHeight, slot, count);
    const n = plan.n++;
    plan.x[n] = left;
    plan.y[n] = top + offset;
    plan.w[n] = width;
    plan.h[n] = tall;
    plan.row[n] = row;
    plan.cls[n] = cls;
  }
}

/** Where one event lies, also out of sight. */
export function rectOf(scene: Scene, row: number): { x: number; y: number; w: number; h: number } | null {
  const agent = scene.agent[row] ?? -1;
  const lane = scene.lanes.ofAgent[agent] ?? -1;
  if (lane < 0) return null;
  const perSecond = scene.width / (scene.view.s1 - scene.view.s0);
  const [offset, h] = band(scene.rowHeight, scene.lanes.slot[agent]!, scene.lanes.list[lane]!.tracks);
  const x = Math.max(-20, Math.min(scene.width + 20, (scene.placed.from[row]! - scene.view.s0) * perSecond));
  const right = Math.min(scene.width + 20, (scene.placed.to[row]! - scene.view.s0) * perSecond);
  return { x, y: lane * scene.rowHeight - scene.view.top + offset, w: Math.max(LEAST, right - x - 0.5), h };
}

/** The event under a point, the last drawn first; small ones are met within `reach` pixels. -1 without. */
export function hitPlan(plan: Plan, x: number, y: number, reach = 3): number {
  let best = -1;
  let least = Infinity;
  for (let k = plan.n - 1; k >= 0; k--) {
    if (y < plan.y[k]! - 1 || y > plan.y[k]! + plan.h[k]! + 1) continue;
    const left = plan.x[k]! - x;
    const right = x - plan.x[k]! - plan.w[k]!;
    const away = Math.max(0, left, right);
    if (away <= reach && away + plan.w[k]! * 1e-4 < least) [best, least] = [plan.row[k]!, away + plan.w[k]! * 1e-4];
  }
  return best;
}

/** Which planned rectangles have room for their glyph: wide enough, or nothing planned close behind in the same place. */
export function glyphRoom(plan: Plan, size: number, most: number): number[] {
  const chosen: number[] = [];
  let free = -1e9;
  let lastY = -1;
  for (let k = 0; k < plan.n && chosen.length < most; k++) {
    if (plan.h[k]! < size) continue;
    if (plan.y[k] !== lastY) [lastY, free] = [plan.y[k]!, -1e9];
    const x = plan.x[k]!;
    const isWide = plan.w[k]! >= size + 4;
    const isLast = k + 1 >= plan.n || plan.y[k + 1] !== lastY || plan.x[k + 1]! - x > size + 2;
    if ((isWide || isLast) && x >= free) {
      chosen.push(k);
      free = x + (isWide ? plan.w[k]! : size + 2);
    }
  }
  return chosen;
}
