// What part of the timeline is seen. Always true: a view lies within the trace (with a little room at the sides) and is never
// narrower than a microsecond; functions give a new view and change none.
import type { TimeMap } from "./gaps";

export interface View {
  /** Shown seconds at the left and the right edge. */
  s0: number;
  s1: number;
  /** Pixels scrolled down. */
  top: number;
}

/** What the view looks at. */
export interface Extent {
  length: number;
  /** Height of all lanes, and of what shows them, in pixels. */
  lanes: number;
  height: number;
}

const NARROWEST_S = 1e-6;
const ROOM = 0.02;

export function fit(extent: Extent): View {
  const room = extent.length * ROOM;
  return { s0: -room, s1: extent.length + room, top: 0 };
}

export function clamp(view: View, extent: Extent): View {
  const whole = fit(extent);
  const width = Math.min(Math.max(view.s1 - view.s0, NARROWEST_S), whole.s1 - whole.s0);
  const s0 = Math.min(Math.max(view.s0, whole.s0), whole.s1 - width);
  return { s0, s1: s0 + width, top: Math.min(Math.max(view.top, 0), Math.max(0, extent.lanes - extent.height)) };
}

/** Zoom by a factor (over 1: closer) around a place, 0 the left edge, 1 the right one. */
export function zoom(view: View, extent: Extent, factor: number, at: number): View {
  const width = Math.max((view.s1 - view.s0) / factor, NARROWEST_S);
  const s = view.s0 + (view.s1 - view.s0) * at;
  return clamp({ ...view, s0: s - width * at, s1: s + width * (1 - at) }, extent);
}

/** Move by shares of the width, and by pixels down. */
export function pan(view: View, extent: Extent, share: number, down = 0): View {
  const by = (view.s1 - view.s0) * share;
  return clamp({ s0: view.s0 + by, s1: view.s1 + by, top: view.top + down }, extent);
}

/** The view that shows a range with a little room. */
export function show(view: View, extent: Extent, from: number, to: number): View {
  const room = Math.max((to - from) * 0.05, NARROWEST_S);
  return clamp({ ...view, s0: from - room, s1: to + room }, extent);
}

/** As little movement as brings an event and its lane into sight. */
export function reveal(view: View, extent: Extent, from: number, to: number, top: number, bottom: number): View {
  const width = view.s1 - view.s0;
  let { s0 } = view;
  if (to < view.s0 + width * 0.02 || from > view.s1 - width * 0.02) s0 = (from + Math.min(to, from + width)) / 2 - width / 2;
  let down = view.top;
  if (top < view.top) down = top;
  else if (bottom > view.top + extent.height) down = bottom - extent.height;
  return clamp({ s0, s1: s0 + width, top: down }, extent);
}

/** Round times in sight, piece by piece between breaks: a break may hide a year. */
export function ticks(map: TimeMap, s0: number, s1: number, step: number): { s: number; t: number }[] {
  const out: { s: number; t: number }[] = [];
  let from = map.start;
  for (const to of [...map.breaks.map((b) => b.from), map.end]) {
    const first = Math.max(from, Math.min(map.unfold(s0), to));
    const last = Math.min(to, Math.max(map.unfold(s1), from));
    for (let k = Math.ceil(first / step - 1e-9); k * step <= last + step * 1e-9; k++) {
      const s = map.fold(k * step);
      if (s >= s0 && s <= s1) out.push({ s, t: k * step });
    }
    from = map.breaks.find((b) => b.from === to)?.to ?? to;
  }
  return out;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

/** A round distance for ticks, at least `least` seconds. */
export function tickStep(least: number): number {
  if (least <= 1) {
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= least * (1 - 1e-9))!;
  }
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / 86400) * 86400;
}

/** A time on the axis, as exact as its step asks for: 0.25 s, 12 s, 4:10, 2:05:00. */
export function tickLabel(t: number, step: number): string {
  const sign = t < 0 ? "−" : "";
  const size = Math.abs(t);
  if (step < 1 || size < 60) {
    const places = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
    if (size < 60) return `${sign}${size.toFixed(places)} s`;
    const minutes = Math.floor(size / 60);
    return `${sign}${minutes}:${(size - minutes * 60).toFixed(places).padStart(places + 3, "0")}`;
  }
  const whole = Math.round(size);
  const two = (value: number) => String(value).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${sign}${h}:${two(m)}:${two(s)}` : `${sign}${m}:${two(s)}`;
}
