// Steering a running team from the page. Always true: an order is queued until the stream names the event in which it took
// effect, and refused only when the server said so; of an order that was queued when its team ended, the trace has the word.
import { openEvents, type Picture } from "./livestate";
import type { LiveTrace, OrderReceipt } from "./shapes.gen";
import type { Source } from "./source";

export type Action = "pause" | "resume" | "message" | "stop";

export interface Sent {
  id: string;
  trace: string;
  action: string;
  /** Empty for the whole team. */
  agent: string;
  /** `ended`: the team did, and whether it got the order first is in its trace. */
  state: "queued" | "applied" | "refused" | "ended" | "lost";
  /** Where it took effect, for each agent that it has reached. */
  events: { event: string; agent: string }[];
  why: string;
}

export const SENT_KEPT = 20;
const SEEN = 50;

export const whom = (agent: string): string => agent || "the team";

export function queued(trace: string, order: OrderReceipt): Sent {
  return { id: order.id, trace, action: order.action, agent: order.agent, state: "queued", events: [], why: "" };
}

let refusals = 0;

export function refused(trace: string, action: string, agent: string, why: string): Sent {
  return { id: `refused-${(refusals += 1)}`, trace, action, agent, state: "refused", events: [], why };
}

/** What has become of the orders that were sent, by the newest picture of what is running. */
export function settled(sent: readonly Sent[], traces: readonly LiveTrace[]): Sent[] {
  return sent.map((one) => {
    if (one.state !== "queued" && one.state !== "applied") return one;
    const trace = traces.find((running) => running.id === one.trace);
    if (!trace) return one.state === "queued" ? { ...one, state: "ended" } : one;
    const events = trace.orders.filter((order) => order.id === one.id).map(({ event, agent }) => ({ event, agent }));
    // The stream keeps the last orders only: what was applied stays so.
    return events.length > one.events.length ? { ...one, state: "applied", events } : one;
  });
}

/** Of an order to a team that has ended: what its trace says. The stream may have missed the last moment. */
export async function lookedUp(one: Sent, from: Pick<Source, "find" | "event">): Promise<Sent> {
  const events: Sent["events"] = [];
  for (const n of (await from.find(one.trace, "kind:human_intervention")).slice(-SEEN)) {
    const { id, fields } = await from.event(one.trace, n);
    const order = fields["order"] as { id?: unknown } | undefined;
    if (order?.id === one.id) events.push({ event: id, agent: String(fields["to"] ?? "") });
  }
  return events.length ? { ...one, state: "applied", events }
    : { ...one, state: "lost", why: "the team ended before a safe point" };
}

export interface Member {
  name: string;
  state: "paused" | "stopped" | "at work" | "waiting";
  doing: string;
  age: number | null;
}

/** The agents of a team that takes orders: who is paused or stopped, and what the others do. */
export function members(trace: LiveTrace, picture: Picture, now: number): Member[] {
  const paused = new Set(trace.paused);
  const stopped = new Set(trace.stopped);
  const doing = new Map(openEvents(picture, now).filter((one) => one.trace === trace.id).map((one) => [one.agent, one]));
  return trace.names.map((name) => {
    const open = doing.get(name);
    const state = stopped.has(name) ? "stopped" : paused.has(name) ? "paused" : open ? "at work" : "waiting";
    return { name, state, doing: open?.what ?? "", age: open?.age ?? null };
  });
}
