import { describe, expect, test } from "vitest";
import { clamp, fit, pan, reveal, show, tickLabel, tickStep, zoom } from "../src/time/view";

const extent = { length: 100, lanes: 500, height: 200 };
const all = fit(extent);

describe("the view", () => {
  test("fits the trace with a little room", () => expect(all).toEqual({ s0: -2, s1: 102, top: 0 }));

  test("zooms around a place, which stays where it is", () => {
    const near = zoom(all, extent, 4, 0.25);
    expect(near.s1 - near.s0).toBeCloseTo(26);
    expect(near.s0 + 0.25 * 26).toBeCloseTo(-2 + 0.25 * 104);
    const back = zoom(near, extent, 0.01, 0.5);
    expect([back.s0, back.s1].map((s) => Math.round(s * 1e6) / 1e6)).toEqual([-2, 102]);
  });

  test("does not leave the trace", () => {
    const near = zoom(all, extent, 10, 0.5);
    expect(pan(near, extent, 100).s1).toBeCloseTo(102);
    expect(pan(near, extent, -100).s0).toBeCloseTo(-2);
    expect(pan(near, extent, 0, 1e6).top).toBe(300);
    expect(clamp({ s0: 5, s1: 5, top: -4 }, extent)).toMatchObject({ s0: 5, top: 0 });
  });

  test("moves no more than it must to show an event", () => {
    const near = show(all, extent, 10, 20);
    expect(reveal(near, extent, 12, 13, 40, 60)).toEqual(near);
    const moved = reveal(near, extent, 50, 51, 400, 422);
    expect((moved.s0 + moved.s1) / 2).toBeCloseTo(50.5);
    expect(moved.top).toBe(222);
  });
});

describe("ticks", () => {
  test("stand at round distances", () => {
    const wanted = [0.0002, 0.05, 1, 1, 5, 60, 900, 7200, 172800].map((value) => expect.closeTo(value, 9));
    expect([0.00013, 0.03, 0.7, 1, 3, 40, 700, 5000, 100000].map(tickStep)).toEqual(wanted);
  });

  test("say as much as their distance asks for", () => {
    const asked = [[0.25, 0.05], [12, 2], [250, 10], [7500, 300], [61.5, 0.5], [-2, 1]] as const;
    expect(asked.map(([t, step]) => tickLabel(t, step)))
      .toEqual(["0.25 s", "12 s", "4:10", "2:05:00", "1:01.5", "−2 s"]);
  });
});
