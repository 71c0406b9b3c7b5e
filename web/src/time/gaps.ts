// Time as it is shown: idle gaps of more than five minutes are folded to a break of a small fixed width. Always true: `fold`
// grows with time, `unfold` undoes it, and both are the identity (less the start) where nothing is folded.
import type { Columns } from "../source";
import { FLAGS } from "../shapes.gen";

export const LEAST_GAP_S = 300;

/** A folded gap: real seconds from..to, shown at..at + width. */
export interface Break {
  from: number;
  to: number;
  at: number;
  width: number;
}

export interface TimeMap {
  start: number;
  end: number;
  /** All that is shown, in seconds. */
  length: number;
  breaks: readonly Break[];
  fold(t: number): number;
  unfold(s: number): number;
}

type Span = readonly [from: number, to: number];

/** Where nobody did anything for `least` seconds. Events come in order of time; an open one lasts until `now`. */
export function idleGaps(columns: Pick<Columns, "n" | "t" | "dur" | "flags">, now: number, least = LEAST_GAP_S): Span[] {
  const gaps: Span[] = [];
  let reached = -Infinity;
  for (let i = 0; i < columns.n; i++) {
    const t = columns.t[i]!;
    if (reached > -Infinity && t - reached > least) gaps.push([reached, t]);
    const end = columns.flags[i]! & FLAGS.open ? Math.max(now, t) : t + (columns.dur[i]! || 0);
    if (end > reached) reached = end;
  }
  return gaps;
}

/** The same from bins: runs of bins in which no lane did anything. The edges are as exact as a bin is wide. */
export function idleGapsOfBins(
  data: Uint8Array, lanes: number, bins: number, start: number, end: number, least = LEAST_GAP_S,
): Span[] {
  const width = (end - start) / bins;
  const gaps: Span[] = [];
  let since = -1;
  for (let b = 0; b <= bins; b++) {
    if (b < bins && !isBusy(data, lanes, bins, b)) continue;
    // The time before the first and after the last event is not a gap between events.
    if (b < bins && since >= 0 && (b - since - 1) * width > least) gaps.push([start + (since + 1) * width, start + b * width]);
    since = b;
  }
  return gaps;
}

function isBusy(data: Uint8Array, lanes: number, bins: number, b: number): boolean {
  for (let lane = 0; lane < lanes; lane++) if (data[(lane * bins + b) * 2 + 1]! > 0) return true;
  return false;
}

/** Breaks together never take more than a fifth of the picture. */
export function timeMap(start: number, end: number, gaps: readonly Span[]): TimeMap {
  const inside = gaps.filter(([from, to]) => from >= start && to <= end && to > from);
  const idle = inside.reduce((sum, [from, to]) => sum + to - from, 0);
  const active = Math.max(end - start - idle, 0);
  const width = inside.length === 0 ? 0 : (active > 0 ? active : inside.length) * Math.min(0.04, 0.25 / inside.length);
  let saved = 0;
  const breaks = inside.map(([from, to]): Break => {
    const at = from - start - saved;
    saved += to - from - width;
    return { from, to, at, width };
  });
  const length = Math.max(end - start - saved, 1e-6);
  return { start, end, length, breaks, fold: (t) => fold(start, breaks, t), unfold: (s) => unfold(start, breaks, s) };
}

function fold(start: number, breaks: readonly Break[], t: number): number {
  const b = breaks[lastAtMost(breaks, t, "from")];
  if (!b) return t - start;
  return t >= b.to ? b.at + b.width + (t - b.to) : b.at + ((t - b.from) / (b.to - b.from)) * b.width;
}

function unfold(start: number, breaks: readonly Break[], s: number): number {
  const b = breaks[lastAtMost(breaks, s, "at")];
  if (!b) return start + s;
  return s >= b.at + b.width ? b.to + (s - b.at - b.width) : b.from + ((s - b.at) / b.width) * (b.to - b.from);
}

/** The last break that begins at or before a value, -1 without. */
function lastAtMost(breaks: readonly Break[], value: number, field: "from" | "at"): number {
  let low = 0;
  let high = breaks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (breaks[middle]![field] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
