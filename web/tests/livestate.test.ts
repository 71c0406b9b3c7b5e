import { expect, test } from "vitest";
import { agentsNow, KEPT, NOTHING, openEvents, silence, taken } from "../src/livestate";
import type { LiveBatch } from "../src/shapes.gen";

const batch = (seq: number, events: LiveBatch["events"] = {}): LiveBatch => ({
  seq, at: 1000, events,
  traces: [{
    id: "t", title: null, task_id: "", agents: 5, events: 9, last_t: 50, silent_s: 4, is_steerable: false, names: [], paused: [], stopped: [],
    orders: [],
    open: [{ id: "e1", agent: "coder", type: "tool_call", tool: "pytest", since: 46, at: 926 },
      { id: "e2", agent: "reader", type: "message", tool: null, since: 44, at: null }],
  }],
});

test("open events have an age by the clock, or by the trace's own time, and grow older", () => {
  const picture = taken(NOTHING, batch(1), 5000);
  expect(openEvents(picture, 5000).map((one) => [one.agent, one.what, one.age])).toEqual([["coder", "tool call pytest", 74],
    ["reader", "thinking", 10]]);
  expect(openEvents(picture, 5006)[0]!.age).toBe(80);
  expect(silence(picture.traces[0]!, picture, 5006)).toBe(10);
});

test("agents run, wait or are silent", () => {
  expect(agentsNow(taken(NOTHING, batch(1), 5000), 5000)).toEqual({ running: 1, silent: 1, waiting: 3 });
});

test("only the last events are kept", () => {
  const many = Array.from({ length: KEPT + 50 }, (_, i) => ({ id: i }));
  const picture = taken(taken(NOTHING, batch(1, { t: many }), 0), batch(2, { t: [{ id: "last" }] }), 0);
  expect(picture.events).toHaveLength(KEPT);
  expect(picture.events.at(-1)).toEqual({ trace: "t", fields: { id: "last" } });
});

test("a call that a stored session waits for has the agent's name, what was asked, and an age", () => {
  const stuck = batch(1);
  stuck.traces[0]!.open = [{ id: "toolu_1", agent: "a4ca7529", name: "Find the hinge", what: "Bash: sleep 99999", at: 900 }];
  const picture = taken(NOTHING, stuck, 5000);
  expect(openEvents(picture, 5000)).toEqual([
    { trace: "t", title: "t", id: "toolu_1", agent: "a4ca7529", name: "Find the hinge", what: "Bash: sleep 99999", age: 100 }]);
  expect(agentsNow(picture, 5000)).toMatchObject({ silent: 1 });
});
