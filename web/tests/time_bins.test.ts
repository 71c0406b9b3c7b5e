import { describe, expect, test } from "vitest";
import {
  binSteps, brightened, buildBinsInSlices, columnsOf, FAINT, FINEST, levelFor, LEVELS, overview, paintRow,
  type LaneBins, type Work,
} from "../src/time/bins";
import { indexLanes, place } from "../src/time/events";
import { timeMap } from "../src/time/gaps";
import { buildLanes } from "../src/time/lanes";
import { agent, columns } from "./time_fixture";

function buildBins(work: Work): LaneBins {
  const steps = binSteps(work);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** 8192 seconds, so that the finest bin is one second. */
const events = columns([
  { t: 0, dur: 4, agent: 0, type: 0 }, { t: 2, dur: 1, agent: 1, type: 1 }, { t: 2.5, agent: 1, type: 2 },
  { t: 8191, dur: 1, agent: 0, type: 1 },
]);
const map = timeMap(0, FINEST, []);
const placed = place(events, map, FINEST);
const lanes = buildLanes([agent("a", -1), agent("b", -1)], "agent", new Set());
const index = indexLanes(events, placed, lanes);
const work = { index, placed, classes: events.type, count: 3, preferred: 3, agents: [1, 1], length: map.length };
const bins = buildBins(work);
const cell = (level: number, lane: number, b: number) => {
  const { cells, bins: count } = bins.levels[level]!;
  return [cells[lane * count + b]! & 255, cells[lane * count + b]! >> 8];
};

describe("bins", () => {
  test("five levels, each twice as fine", () => {
    expect(bins.levels.map((level) => level.bins)).toEqual([512, 1024, 2048, 4096, 8192]);
    expect(bins.levels).toHaveLength(LEVELS);
  });

  test("the class of most time, and how busy", () => {
    expect([0, 3, 4].map((b) => cell(4, 0, b))).toEqual([[0, 255], [0, 255], [0, 0]]);
    expect(cell(4, 1, 2)).toEqual([1, 255]); // a second of class 1 beats an instant of class 2
    expect(cell(2, 0, 0)).toEqual([0, 255]); // four seconds of four
    expect(cell(0, 0, 0)).toEqual([0, 128]); // four of sixteen: the root of a quarter of 255
    expect(cell(0, 0, 511)).toEqual([1, 64]);
  });

  test("whatever happened can be seen", () => {
    const tiny = { ...work, classes: work.classes, agents: [1, 4000] };
    const { cells, bins: count } = buildBins(tiny).levels[0]!;
    expect(cells[count]! >> 8).toBe(FAINT);
  });

  test("what a filter found shows before what took longer", () => {
    const found = buildBins({ ...work, classes: Uint8Array.of(2, 2, 0, 2), preferred: 1 }).levels[4]!;
    expect([found.cells[8192 + 2]! & 255, found.cells[0]! & 255]).toEqual([0, 2]);
  });

  test("in slices the same; called off, nothing", async () => {
    expect(await buildBinsInSlices(work, () => true, 0)).toEqual(bins);
    expect(await buildBinsInSlices(work, () => false, 0)).toBeNull();
  });
});

test("plain shares are made as bright as our own", () => {
  expect([...brightened(Uint8Array.of(3, 0, 1, 1, 2, 64, 4, 255, 0, 2, 0, 8, 0, 0, 0, 1), 2)])
    .toEqual([0, FAINT * 256 + 1, 128 * 256 + 2, 255 * 256 + 4, 128 * 256, 255 * 256, 0, 90 * 256]);
});

describe("pixels from bins", () => {
  test("the coarsest level with a bin per pixel", () => {
    expect([800, 4096, 9000].map((pixels) => levelFor(bins, 0, 8192, pixels).bins)).toEqual([1024, 4096, 8192]);
    expect(levelFor(bins, 0, 512, 100).bins).toBe(2048);
  });

  test("a pixel shows the busiest of its bins", () => {
    const level = bins.levels[4]!;
    const { low, high } = columnsOf(bins, level, 4, (x) => x * 2.5); // bins 0-3, 2-5, 5-8, 7-10
    expect([...low]).toEqual([0, 2, 5, 7]);
    expect([...high]).toEqual([3, 5, 8, 10]);
    const colours = Uint32Array.from({ length: 65536 }, (_, cell) => cell >> 8);
    const out = new Uint32Array(5).fill(9);
    paintRow(level, 0, low, high, colours, out, 1);
    expect([...out]).toEqual([9, 255, 255, 0, 0]);
  });

  test("outside of the trace there is nothing", () => {
    const level = bins.levels[4]!;
    const { low, high } = columnsOf(bins, level, 2, (x) => x === 0 ? -20 : x === 1 ? -10 : -1);
    expect([...low].every((value, x) => value >= high[x]!)).toBe(true);
  });

  test("the overview is the share of the busiest moment", () => {
    const all = overview(bins, 512, (x) => x * 16);
    expect(all[0]).toBe(1);
    expect(all[5]).toBe(0);
    expect(all[511]!).toBeGreaterThan(0.2);
  });
});
