// The events lane by lane, placed on shown time. Always true: within a lane events are in order of their start; `reach` is the
// latest end so far, so what is visible is one run of the order.
import type { Columns } from "../source";
import { FLAGS } from "../shapes.gen";
import type { TimeMap } from "./gaps";
import type { Lanes } from "./lanes";

/** Start and end of each event in shown seconds. */
export interface Placed {
  from: Float64Array;
  to: Float64Array;
}

export interface LaneIndex {
  /** Lane k has order[first[k]] to order[first[k + 1] - 1]. */
  first: Uint32Array;
  /** Rows of the columns. */
  order: Uint32Array;
  /** Latest end among the lane's events up to here. */
  reach: Float64Array;
}

export function place(columns: Columns, map: TimeMap, now: number): Placed {
  const { n, t, dur, flags } = columns;
  const from = new Float64Array(n);
  const to = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const begin = t[i]!;
    from[i] = map.fold(begin);
    to[i] = map.fold(flags[i]! & FLAGS.open ? Math.max(now, begin) : begin + (dur[i]! || 0));
  }
  return { from, to };
}

export function indexLanes(columns: Pick<Columns, "n" | "agent">, placed: Placed, lanes: Lanes): LaneIndex {
  const count = lanes.list.length;
  const first = new Uint32Array(count + 1);
  const { n, agent } = columns;
  for (let i = 0; i < n; i++) {
    const lane = lanes.ofAgent[agent[i]!] ?? -1;
    if (lane >= 0) first[lane + 1]! += 1;
  }
  for (let k = 0; k < count; k++) first[k + 1]! += first[k]!;
  const order = new Uint32Array(first[count]!);
  const next = first.slice(0, count);
  for (let i = 0; i < n; i++) {
    const lane = lanes.ofAgent[agent[i]!] ?? -1;
    if (lane >= 0) order[next[lane]!++] = i;
  }
  return { first, order, reach: reaches(first, order, placed) };
}

function reaches(first: Uint32Array, order: Uint32Array, placed: Placed): Float64Array {
  const reach = new Float64Array(order.length);
  for (let lane = 0; lane + 1 < first.length; lane++) {
    let latest = -Infinity;
    for (let k = first[lane]!; k < first[lane + 1]!; k++) {
      latest = Math.max(latest, placed.to[order[k]!]!);
      reach[k] = latest;
    }
  }
  return reach;
}

/** The run of a lane's order that may be seen between two shown times. */
export function runOf(index: LaneIndex, placed: Placed, lane: number, s0: number, s1: number): [low: number, high: number] {
  const begin = index.first[lane]!;
  const end = index.first[lane + 1]!;
  const low = search(begin, end, (k) => index.reach[k]! < s0);
  const high = search(low, end, (k) => placed.from[index.order[k]!]! <= s1);
  return [low, high];
}

/** First place in low..high where `before` no longer holds. */
function search(low: number, high: number, before: (k: number) => boolean): number {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Rows between two shown times in these lanes, in order of time. */
export function rowsBetween(index: LaneIndex, placed: Placed, lanes: readonly number[], s0: number, s1: number): number[] {
  const rows: number[] = [];
  for (const lane of lanes) {
    const [low, high] = runOf(index, placed, lane, s0, s1);
    for (let k = low; k < high; k++) {
      const row = index.order[k]!;
      if (placed.to[row]! >= s0) rows.push(row);
    }
  }
  return rows.sort((a, b) => placed.from[a]! - placed.from[b]! || a - b);
}

/** The event before (-1) or after (1) a row in its lane, -1 at the end. */
export function beside(index: LaneIndex, placed: Placed, lane: number, row: number, step: -1 | 1): number {
  const begin = index.first[lane] ?? 0;
  const end = index.first[lane + 1] ?? 0;
  let k = search(begin, end, (i) => placed.from[index.order[i]!]! < placed.from[row]!);
  while (k < end && index.order[k] !== row) k++;
  k += step;
  return k >= begin && k < end ? index.order[k]! : -1;
}

/** The event of a lane nearest to a shown time, -1 in an empty lane. */
export function nearest(index: LaneIndex, placed: Placed, lane: number, s: number): number {
  const begin = index.first[lane] ?? 0;
  const end = index.first[lane + 1] ?? 0;
  const after = search(begin, end, (i) => placed.from[index.order[i]!]! < s);
  let best = -1;
  let least = Infinity;
  for (let k = Math.max(begin, after - 8); k < Math.min(end, after + 1); k++) {
    const row = index.order[k]!;
    const away = s < placed.from[row]! ? placed.from[row]! - s : Math.max(0, s - placed.to[row]!);
    if (away <= least) [best, least] = [row, away];
  }
  return best;
}

/** The nearest lane above or below with any event; -1 without. */
export function laneBeside(index: LaneIndex, lane: number, step: -1 | 1): number {
  for (let k = lane + step; k >= 0 && k + 1 < index.first.length; k += step) {
    if (index.first[k + 1]! > index.first[k]!) return k;
  }
  return -1;
}
