import { expect, test } from "vitest";
import { NOTHING, taken } from "../src/livestate";
import type { EventDetail, LiveBatch, LiveTrace } from "../src/shapes.gen";
import { lookedUp, members, queued, refused, settled, whom } from "../src/steering";

const trace = (more: Partial<LiveTrace> = {}): LiveTrace => ({
  id: "t", title: null, task_id: "", agents: 3, events: 9, last_t: 50, silent_s: 0,
  open: [{ id: "e1", agent: "lead.2", type: "tool_call", tool: "sql", since: 46, at: 926 }],
  is_steerable: true, names: ["lead", "lead.1", "lead.2", "lead.3"], paused: ["lead.1"], stopped: ["lead.3"], orders: [], ...more,
});
const order = { id: "o1", action: "pause", agent: "lead.1", tree: false, by: "me" };

test("an order is queued until the stream says where it took effect, and stays applied", () => {
  const sent = [queued("t", order)];
  expect(settled(sent, [trace()])[0]!.state).toBe("queued");
  const applied = settled(sent, [trace({ orders: [{ id: "o1", action: "pause", agent: "lead.1", event: "e12" },
    { id: "other", action: "stop", agent: "lead", event: "e13" }] })]);
  expect(applied[0]).toMatchObject({ state: "applied", events: [{ event: "e12", agent: "lead.1" }] });
  expect(settled(applied, [trace()])[0]!.state).toBe("applied");
  expect(settled(applied, [])[0]!.state).toBe("applied");
});

test("of an order to a team that ended its trace says whether it was applied", async () => {
  const ended = { ...queued("t", order), state: "ended" as const };
  const from = (id: string) => ({
    find: async () => [3],
    event: async () => ({ id: "e9", fields: { order: { id }, to: "lead.1" } }) as unknown as EventDetail,
  });
  expect(await lookedUp(ended, from("o1"))).toMatchObject({ state: "applied", events: [{ event: "e9", agent: "lead.1" }] });
  expect(await lookedUp(ended, from("o2"))).toMatchObject({ state: "lost" });
});

test("an order to a team that ended waits for its trace's word, and a refused one stays refused", () => {
  expect(settled([queued("t", order)], [])[0]!.state).toBe("ended");
  const no = refused("t", "stop", "", "is over");
  expect(settled([no], [trace()])[0]).toEqual(no);
  expect(refused("t", "stop", "", "is over").id).not.toBe(no.id);
  expect(whom("")).toBe("the team");
});

test("members are paused, stopped, at work or waiting", () => {
  const batch: LiveBatch = { seq: 1, at: 1000, traces: [trace()], events: {} };
  const found = members(trace(), taken(NOTHING, batch, 5000), 5000);
  expect(found.map((one) => [one.name, one.state, one.doing])).toEqual([["lead", "waiting", ""], ["lead.1", "paused", ""],
    ["lead.2", "at work", "tool call sql"], ["lead.3", "stopped", ""]]);
  expect(found[2]!.age).toBe(74);
});
