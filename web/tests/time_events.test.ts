import { expect, test } from "vitest";
import { FLAGS } from "../src/shapes.gen";
import { beside, indexLanes, laneBeside, nearest, place, rowsBetween, runOf } from "../src/time/events";
import { timeMap } from "../src/time/gaps";
import { buildLanes } from "../src/time/lanes";
import { agent, columns } from "./time_fixture";

const events = columns([
  { t: 0, dur: 100, agent: 0 }, { t: 1, dur: 2, agent: 1 }, { t: 5, dur: 1, agent: 1 }, { t: 6, agent: 0 },
  { t: 8, agent: 1, flags: FLAGS.open }, { t: 9, agent: 3, dur: 1 },
]);
const lanes = buildLanes([agent("a", -1), agent("b", -1), agent("empty", -1), agent("d", -1)], "agent", new Set());
const placed = place(events, timeMap(0, 100, []), 50);
const index = indexLanes(events, placed, lanes);

test("an open event lasts until now, one without length has none", () => {
  expect([...placed.to]).toEqual([100, 3, 6, 6, 50, 10]);
});

test("lanes hold their events in order, with the latest end so far", () => {
  expect([...index.first]).toEqual([0, 2, 5, 5, 6]);
  expect([...index.order]).toEqual([0, 3, 1, 2, 4, 5]);
  expect([...index.reach]).toEqual([100, 100, 3, 6, 50, 10]);
});

test("what may be seen between two times", () => {
  expect(runOf(index, placed, 0, 7, 9)).toEqual([0, 2]); // the long one covers it
  expect(runOf(index, placed, 1, 4, 5.5)).toEqual([3, 4]);
  expect(rowsBetween(index, placed, [0, 1, 3], 7, 20)).toEqual([0, 4, 5]);
});

test("neighbours in a lane, and lanes with events", () => {
  const next = (row: number, step: -1 | 1) => beside(index, placed, 1, row, step);
  expect([next(2, 1), next(2, -1), next(4, 1), next(1, -1)]).toEqual([4, 1, -1, -1]);
  expect([laneBeside(index, 1, 1), laneBeside(index, 1, -1), laneBeside(index, 3, 1)]).toEqual([3, 0, -1]);
  expect([nearest(index, placed, 1, 4), nearest(index, placed, 1, 3.5), nearest(index, placed, 2, 1)]).toEqual([2, 1, -1]);
});

test("events at one time are passed one by one", () => {
  const same = columns([{ t: 1 }, { t: 1 }, { t: 1 }]);
  const where = place(same, timeMap(0, 2, []), 2);
  const one = indexLanes(same, where, buildLanes([agent("a", -1)], "agent", new Set()));
  expect([beside(one, where, 0, 0, 1), beside(one, where, 0, 1, 1), beside(one, where, 0, 2, -1)]).toEqual([1, 2, 1]);
});
