import { beforeEach, expect, test } from "vitest";
import type { Source } from "../src/source";
import { source, trace, windowed, type Current } from "../src/state";
import { covered, forgetWindows, isWhole, paddedRange, wantWindow, windowProblem } from "../src/time/large";
import { EXACT } from "../src/time/plan";
import { columns } from "./time_fixture";

const asked: [number, number][] = [];

function open(found: (from: number, to: number) => number): void {
  asked.length = 0;
  const about = { id: "x", start: 0, end: 1000, events: 1_000_000, is_large: true };
  trace.value = { id: "x", about, columns: null, bins: null } as unknown as Current;
  source.value = {
    window: async (_: string, from: number, to: number) => {
      asked.push([from, to]);
      return { ...columns([]), n: found(from, to) };
    },
  } as unknown as Source;
  windowed.value = null;
  forgetWindows();
}

beforeEach(() => open(() => 10));

test("a range is asked for with room at its sides, less the fuller it is, and not at all when it is too full", () => {
  expect(paddedRange(500, 501, 0, 1000, 1_000_000)).toEqual([499, 502]);
  expect(paddedRange(500, 504, 0, 1000, 1_000_000)).toEqual([499, 505]);
  expect(paddedRange(500, 510, 0, 1000, 1_000_000)).toEqual([500, 510]);
  expect(paddedRange(0, 500, 0, 1000, 1_000_000)).toBeNull();
  expect(paddedRange(0, 1, 0, 1000, 1_000_000)).toEqual([0, 2]);
});

test("a window is used for times it covers, and a small pan asks for nothing", async () => {
  await wantWindow(500, 501);
  expect(covered.value).toEqual([499, 502]);
  expect([isWhole(499.5, 501.5), isWhole(499.5, 503)]).toEqual([true, false]);
  await wantWindow(500.5, 501.5);
  expect(asked).toHaveLength(1);
});

test("when the whole of a trace takes the place of its first look, its events are asked for again, once", async () => {
  await wantWindow(500, 501);
  trace.value = { ...trace.value! };
  windowed.value = null;
  await Promise.all([wantWindow(500, 501), wantWindow(500, 501)]);
  expect([asked.length, windowed.value !== null]).toEqual([2, true]);
});

test("what holds too many is not shown, and not asked for again", async () => {
  open(() => EXACT + 1);
  await wantWindow(500, 510);
  await wantWindow(499, 511);
  expect([covered.value, asked.length]).toEqual([null, 1]);
});

test("the last question wins, and a failure is said", async () => {
  await Promise.all([wantWindow(100, 101), wantWindow(200, 201)]);
  expect(covered.value).toEqual([199, 202]);
  source.value = { window: async () => { throw new Error("gone"); } } as unknown as Source;
  await wantWindow(900, 901);
  expect(windowProblem.value).toBe("gone");
});

test("a trace that is here whole needs no window", async () => {
  trace.value = { ...trace.value!, columns: columns([]) };
  await wantWindow(0, 1);
  expect([asked.length, isWhole(0, 1e9)]).toEqual([0, true]);
});
