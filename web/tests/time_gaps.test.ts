import { describe, expect, test } from "vitest";
import { FLAGS } from "../src/shapes.gen";
import { idleGaps, idleGapsOfBins, timeMap } from "../src/time/gaps";
import { columns } from "./time_fixture";

describe("idle gaps", () => {
  test("only what nobody covers for more than five minutes", () => {
    const events = columns([{ t: 0, dur: 10 }, { t: 2, dur: 400 }, { t: 700, dur: 1 }, { t: 1100 }, { t: 1101, dur: 5 }]);
    expect(idleGaps(events, 1106)).toEqual([[701, 1100]]);
  });

  test("an open event is not idle", () => {
    expect(idleGaps(columns([{ t: 0, flags: FLAGS.open }, { t: 5000 }]), 6000)).toEqual([]);
  });

  test("from bins, with the edges of bins", () => {
    const data = new Uint8Array(2 * 10 * 2);
    for (const [lane, bin] of [[0, 0], [1, 1], [0, 8]] as const) data[(lane * 10 + bin) * 2 + 1] = 200;
    expect(idleGapsOfBins(data, 2, 10, 0, 1000)).toEqual([[200, 800]]);
    expect(idleGapsOfBins(data, 2, 10, 0, 100)).toEqual([]);
  });
});

describe("shown time", () => {
  const map = timeMap(100, 1300, [[200, 600], [700, 1200]]);

  test("breaks take a small fixed width", () => {
    expect(map.breaks).toEqual([{ from: 200, to: 600, at: 100, width: 12 }, { from: 700, to: 1200, at: 212, width: 12 }]);
    expect(map.length).toBe(324);
  });

  test("there and back", () => {
    const times = [100, 150, 200, 400, 600, 700, 1200, 1300, 1350, 50];
    expect(times.map(map.fold)).toEqual([0, 50, 100, 106, 112, 212, 224, 324, 374, -50]);
    for (let t = 50; t < 1400; t += 7.3) expect(map.unfold(map.fold(t))).toBeCloseTo(t, 9);
    for (let s = -20; s < 340; s += 1.7) expect(map.fold(map.unfold(s))).toBeCloseTo(s, 9);
  });

  test("nothing folded: time less the start; nothing at all: still a length", () => {
    expect(timeMap(10, 20, []).fold(13)).toBe(3);
    expect(timeMap(5, 5, []).length).toBeGreaterThan(0);
  });
});
