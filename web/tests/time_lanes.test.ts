import { describe, expect, test } from "vitest";
import type { Agent } from "../src/shapes.gen";
import { buildLanes, kindOf, labelOf } from "../src/time/lanes";
import { agent } from "./time_fixture";

const NONE = new Set<string>();

/** orchestrator -> researcher -> reader 1..6; -> coder; user outside */
function team(): Agent[] {
  const readers = Array.from({ length: 6 }, (_, i) => agent(`reader-${i + 1}`, 1, { depth: 2, spawn: 10 + i }));
  return [
    agent("orchestrator", -1), agent("researcher", 0, { spawn: 1 }), agent("coder", 0, { spawn: 30 }), ...readers,
    agent("user", -1, { is_outside: true }),
  ];
}

const labels = (lanes: ReturnType<typeof buildLanes>) => lanes.list.map((lane) => "  ".repeat(lane.indent) + labelOf(lane));

describe("lanes by agent", () => {
  test("follow the spawn tree, fold like siblings and put outsiders last", () => {
    const lanes = buildLanes(team(), "agent", NONE);
    expect(labels(lanes)).toEqual(["orchestrator", "  researcher", "    reader ×6", "  coder", "user"]);
    expect([...lanes.ofAgent]).toEqual([0, 1, 3, 2, 2, 2, 2, 2, 2, 4]);
    expect(lanes.slot[8]).toBe(5);
  });

  test("an opened fold is a heading without events, then its members", () => {
    const closed = buildLanes(team(), "agent", NONE);
    const lanes = buildLanes(team(), "agent", new Set([closed.list[2]!.key]));
    expect(labels(lanes).slice(2, 5)).toEqual(["    reader ×6", "      reader-1", "      reader-2"]);
    expect(lanes.list[2]).toMatchObject({ fold: "open", agents: [], count: 6 });
    expect(lanes.ofAgent[5]).toBe(5);
  });

  test("agents of a fold that do not overlap in time share a track", () => {
    const times = [[0, 5], [1, 3], [3, 9], [5, 6]];
    const agents = times.map(([start, end], i) => agent(`w${i}`, -1, { start: start!, end: end! }));
    const lanes = buildLanes(agents, "agent", NONE);
    expect([...lanes.slot]).toEqual([0, 1, 1, 0]);
    expect(lanes.list[0]!.tracks).toBe(2);
  });

  test("a few siblings of one role stay apart; children of folded siblings are pooled", () => {
    const agents = [agent("root", -1), ...[1, 2, 3, 4].map((i) => agent(`lead ${i}`, 0, { spawn: i }))];
    agents.push(...[1, 2, 3, 4].map((parent) => agent(`of ${parent} alone`, parent, { role: "helper" })));
    expect(labels(buildLanes(agents, "agent", NONE))).toEqual(["root", "  lead ×4", "    helper ×4"]);
    expect(labels(buildLanes(agents.slice(0, 4), "agent", NONE))).toEqual(["root", "  lead 1", "  lead 2", "  lead 3"]);
  });

  test("parents in a circle lose nobody", () => {
    const agents = [agent("a", 1), agent("b", 0), agent("c", 2)];
    expect([...buildLanes(agents, "agent", NONE).ofAgent].every((lane) => lane >= 0)).toBe(true);
  });
});

describe("many agents", () => {
  const workers = Array.from({ length: 300 }, (_, i) => agent(`w${i}`, 0, { role: i % 2 ? "coder" : "reader" }));
  const many = [agent("boss", -1), ...workers];

  test("become roles with counts, opened on demand", () => {
    const lanes = buildLanes(many, "agent", NONE);
    expect(labels(lanes)).toEqual(["boss", "  reader ×150", "  coder ×150"]);
    expect(buildLanes(many, "agent", new Set([lanes.list[1]!.key])).list).toHaveLength(153);
  });

  test("a role at two depths is two lanes, the deeper further in", () => {
    const deep = [...many, agent("x", 1, { role: "reader", depth: 2 })];
    expect(labels(buildLanes(deep, "agent", NONE))).toEqual(["boss", "  reader ×150", "  coder ×150", "    x"]);
  });

  test("without roles or numbered names they fold by depth", () => {
    const odd = Array.from({ length: 250 }, (_, i) => agent(`${i}x`, i ? 0 : -1));
    expect(labels(buildLanes(odd, "agent", NONE))).toEqual(["0x", "depth 1 ×249"]);
  });
});

test("by role and by depth", () => {
  expect(labels(buildLanes(team(), "depth", NONE))).toEqual(["orchestrator", "depth 1 ×2", "depth 2 ×6", "user"]);
  expect(labels(buildLanes(team(), "role", NONE))).toEqual(["orchestrator", "researcher", "coder", "reader ×6", "user"]);
});

test("groups of the server keep their row", () => {
  const groups = [{ label: "lead", members: [0] }, { label: "all", members: [1, 2, 3, 4, 5, 6, 7, 8, 9] }];
  const lanes = buildLanes(team(), "agent", NONE, groups);
  expect(labels(lanes)).toEqual(["orchestrator", "all ×9"]);
  expect(lanes.list.map((lane) => lane.row)).toEqual([0, 1]);
});

test("the kind of an agent is its role, or its name without a number", () => {
  const kinds = ["reader-12", "reader 3", "w7", "42", "v2-x"].map((name) => kindOf(agent(name, -1)));
  expect(kinds).toEqual(["reader", "reader", "w", "42", "v2-x"]);
  expect(kindOf(agent("x", -1, { role: "critic" }))).toBe("critic");
});
