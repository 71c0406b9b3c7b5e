import { describe, expect, test } from "vitest";
import { indexLanes, place } from "../src/time/events";
import { timeMap } from "../src/time/gaps";
import { buildLanes } from "../src/time/lanes";
import { band, emptyPlan, EXACT, glyphRoom, hitPlan, lanesInSight, planExact, type Scene } from "../src/time/plan";
import { agent, columns, type Row } from "./time_fixture";

function scene(rows: Row[], names: string[], more: Partial<Scene> = {}): Scene {
  const events = columns(rows);
  const lanes = buildLanes(names.map((name) => agent(name, -1)), "agent", new Set());
  const placed = place(events, timeMap(0, 100, []), 100);
  const index = indexLanes(events, placed, lanes);
  return {
    lanes, index, placed, agent: events.agent, classes: events.type, view: { s0: 0, s1: 100, top: 0 },
    width: 1000, height: 100, rowHeight: 20, ...more,
  };
}

const rows: Row[] = [{ t: 10, dur: 20, agent: 0 }, { t: 20, dur: 40, agent: 1, type: 1 }, { t: 50, agent: 0, type: 2 }];

describe("the plan", () => {
  test("puts each event in its lane at its time", () => {
    const plan = emptyPlan();
    expect(planExact(scene(rows, ["a", "b"]), plan)).toBe(true);
    expect([...plan.row.slice(0, plan.n)]).toEqual([0, 2, 1]);
    expect([...plan.x.slice(0, 3)]).toEqual([100, 500, 200]);
    expect([...plan.w.slice(0, 3)]).toEqual([199.5, 2.5, 399.5]);
    expect([...plan.y.slice(0, 3)]).toEqual([3, 3, 23]);
    expect([...plan.cls.slice(0, 3)]).toEqual([0, 2, 1]);
  });

  test("has slices for the agents of a folded lane", () => {
    const plan = emptyPlan();
    planExact(scene([{ t: 0, dur: 9, agent: 0 }, { t: 0, dur: 9, agent: 2 }], ["w1", "w2", "w3", "w4"]), plan);
    expect([plan.y[0], plan.y[1]].map((y) => Math.round(y! * 10) / 10)).toEqual([3, 10]);
    expect(band(20, 1, 2)).toEqual([10, 6]);
    expect(band(2, 0, 1)).toEqual([0, 2]);
  });

  test("leaves out what would cover its neighbour, and what is out of sight", () => {
    const plan = emptyPlan();
    planExact(scene([{ t: 10 }, { t: 10.01 }, { t: 10.02, type: 1 }, { t: 10.3 }], ["a"]), plan);
    expect([...plan.row.slice(0, plan.n)]).toEqual([0, 2, 3]);
    planExact(scene(rows, ["a", "b"], { view: { s0: 31, s1: 40, top: 0 } }), plan);
    expect([...plan.row.slice(0, plan.n)]).toEqual([1]);
  });

  test("is not made for more than it can hold", () => {
    const many = Array.from({ length: EXACT + 1 }, (_, i) => ({ t: i / 200 }));
    const plan = emptyPlan();
    expect(planExact(scene(many, ["a"]), plan)).toBe(false);
    expect(planExact(scene(many, ["a"], { view: { s0: 0, s1: 1, top: 0 } }), plan)).toBe(true);
  });

  test("knows the lanes in sight", () => {
    expect(lanesInSight({ s0: 0, s1: 1, top: 45 }, 100, 20, 50)).toEqual([2, 8]);
    expect(lanesInSight({ s0: 0, s1: 1, top: 0 }, 100, 20, 3)).toEqual([0, 3]);
  });
});

describe("pointing", () => {
  const plan = emptyPlan();
  planExact(scene(rows, ["a", "b"]), plan);

  test("meets the event under the pointer, small ones within reach", () => {
    const points = [[150, 10], [250, 30], [498, 10], [480, 10], [150, 30]] as const;
    expect(points.map(([x, y]) => hitPlan(plan, x, y))).toEqual([0, 1, 2, -1, -1]);
  });

  test("prefers the small one on top of a long one", () => {
    const both = emptyPlan();
    planExact(scene([{ t: 0, dur: 100 }, { t: 50 }], ["a"]), both);
    expect([hitPlan(both, 501, 10), hitPlan(both, 530, 10)]).toEqual([1, 0]);
  });
});

test("glyphs only where there is room", () => {
  const plan = emptyPlan();
  planExact(scene([{ t: 0, dur: 5 }, { t: 6 }, { t: 6.5 }, { t: 20 }], ["a"]), plan);
  expect(glyphRoom(plan, 10, 100)).toEqual([0, 2, 3]);
  expect(glyphRoom(plan, 10, 1)).toEqual([0]);
  expect(glyphRoom(plan, 30, 100)).toEqual([]);
});
