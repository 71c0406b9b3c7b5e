// What is running, gathered from the stream. Always true: a trace's newest line wins; an open event's age grows with the clock
// between batches; only the last events of each trace are kept.
import type { LiveBatch, LiveTrace } from "./shapes.gen";

/** An agent or event that says nothing for so long is an alert. */
export const SILENT_S = 60;
export const KEPT = 200;

export interface LiveEvent {
  trace: string;
  fields: Record<string, unknown>;
}

export interface Picture {
  seq: number;
  /** The server's clock at the last batch, and ours, in seconds. */
  at: number;
  heard: number;
  traces: LiveTrace[];
  /** The newest last. */
  events: LiveEvent[];
}

export const NOTHING: Picture = { seq: -1, at: 0, heard: 0, traces: [], events: [] };

export function taken(picture: Picture, batch: LiveBatch, now: number): Picture {
  const told = Object.entries(batch.events).flatMap(([trace, rows]) => rows.map((fields) => ({ trace, fields })));
  const events = told.length ? [...picture.events, ...told].slice(-KEPT) : picture.events;
  return { seq: batch.seq, at: batch.at, heard: now, traces: batch.traces, events };
}

export interface OpenEvent {
  trace: string;
  /** What the trace is called. */
  title: string;
  id: string;
  agent: string;
  /** What people call the agent. */
  name: string;
  what: string;
  /** Null where the clock time of its beginning is not known. */
  age: number | null;
}

const text = (value: unknown) => (typeof value === "string" ? value : "");

/** What has begun and not ended, the oldest first. */
export function openEvents(picture: Picture, now: number): OpenEvent[] {
  const passed = Math.max(0, now - picture.heard);
  const out = picture.traces.flatMap((trace) => trace.open.map((one) => ({
    trace: trace.id, title: trace.title ?? trace.id, id: text(one["id"]), agent: text(one["agent"]), name: text(one["name"]) || text(one["agent"]),
    what: text(one["what"]) || doing(text(one["type"]), text(one["tool"])),
    age: ageOf(one, trace, picture.at, passed),
  })));
  return out.sort((a, b) => (b.age ?? -1) - (a.age ?? -1));
}

/** What an agent does while an event is open: a message or decision that has not ended is still being thought of. */
export function doing(type: string, tool: string): string {
  if (tool) return `${type.replaceAll("_", " ")} ${tool}`;
  return type === "message" || type === "orchestrator_decision" ? "thinking" : type.replaceAll("_", " ");
}

/** By the clock where the event has one; else how much of the trace has passed since, and how long that has been silent. */
function ageOf(one: Record<string, unknown>, trace: LiveTrace, at: number, passed: number): number | null {
  const clock = typeof one["at"] === "number" ? one["at"]
    : typeof one["at"] === "string" ? Date.parse(one["at"]) / 1000 : Number.NaN;
  if (Number.isFinite(clock)) return Math.max(0, at - clock) + passed;
  const since = one["since"];
  return typeof since === "number" ? Math.max(0, trace.last_t - since) + trace.silent_s + passed : null;
}

export function silence(trace: LiveTrace, picture: Picture, now: number): number {
  return trace.silent_s + Math.max(0, now - picture.heard);
}

export interface AgentsNow {
  running: number;
  waiting: number;
  silent: number;
}

/** Agents with an open event run; those whose event has been open beyond the limit are silent; the others of open traces wait. */
export function agentsNow(picture: Picture, now: number): AgentsNow {
  const oldest = new Map<string, number>();
  for (const one of openEvents(picture, now)) {
    const key = `${one.trace}/${one.agent}`;
    oldest.set(key, Math.min(oldest.get(key) ?? Number.POSITIVE_INFINITY, one.age ?? 0));
  }
  const silent = [...oldest.values()].filter((age) => age > SILENT_S).length;
  const all = picture.traces.reduce((sum, trace) => sum + trace.agents, 0);
  return { running: oldest.size - silent, silent, waiting: Math.max(0, all - oldest.size) };
}
