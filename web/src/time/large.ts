// Exact events of a large trace, a window at a time. Always true: a window is used only for times it covers whole; what is
// asked for is a little wider than what is seen, so that a small pan asks for nothing; the last answer wins.
import { signal } from "@preact/signals";
import { source, trace, windowed } from "../state";
import { EXACT } from "./plan";

/** Seconds that the window at hand covers; null without one. */
export const covered = signal<readonly [number, number] | null>(null);
/** Why exact events are not there while one looks closely. */
export const windowProblem = signal<string | null>(null);
let asked = 0;
/** What is on its way, and for which state of the trace. */
let pending: { of: unknown; range: readonly [number, number] } | null = null;
/** A range that held too many events: nothing that contains it needs to be asked for. */
let tooMuch: readonly [number, number] | null = null;

export function forgetWindows(): void {
  asked++;
  covered.value = null;
  windowProblem.value = null;
  tooMuch = pending = null;
}

/** How much wider than the view to ask, by how many events it probably holds. */
export function paddedRange(from: number, to: number, start: number, end: number, events: number): [number, number] | null {
  const share = (to - from) / Math.max(end - start, 1e-9);
  const likely = events * share;
  if (likely > 8 * EXACT) return null;
  const room = likely < EXACT / 4 ? to - from : likely < EXACT / 2 ? (to - from) / 4 : 0;
  return [Math.max(start, from - room), Math.min(end, to + room)];
}

function holds(outer: readonly [number, number] | null, from: number, to: number): boolean {
  return outer !== null && outer[0] <= from && outer[1] >= to;
}

/** Gets the exact events of a range where they are few enough. */
export async function wantWindow(from: number, to: number): Promise<void> {
  const [current, at] = [trace.value, source.value];
  if (!current || !at || !current.about.is_large || current.columns) return;
  const { start, end, events, id } = current.about;
  const low = Math.max(from, start);
  const high = Math.min(to, end);
  // The events at hand go when the whole of a trace takes the place of its first look.
  if (high <= low || (windowed.peek() && holds(covered.value, low, high))) return;
  const range = paddedRange(low, high, start, end, events);
  if (!range || (tooMuch && holds([low, high], tooMuch[0], tooMuch[1]))) return;
  if (pending?.of === current && holds(pending.range, low, high)) return;
  const mine = ++asked;
  pending = { of: current, range };
  try {
    const found = await at.window(id, range[0], range[1], EXACT + 1);
    if (mine !== asked || trace.value !== current) return;
    windowProblem.value = null;
    if (found.n > EXACT) tooMuch = range;
    else {
      windowed.value = found;
      covered.value = range;
    }
  } catch (error) {
    if (mine === asked) windowProblem.value = error instanceof Error ? error.message : String(error);
  } finally {
    if (mine === asked) pending = null;
  }
}

/** Whether the events at hand are all there are between two times. */
export function isWhole(from: number, to: number): boolean {
  const current = trace.value;
  if (!current) return false;
  if (current.columns) return true;
  return holds(covered.value, Math.max(from, current.about.start), Math.min(to, current.about.end));
}
