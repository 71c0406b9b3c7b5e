import { expect, test } from "vitest";
import { aligned, charts, last, stepOf } from "../src/series";
import type { Series } from "../src/shapes.gen";

const series = (name: string, x: number[], y: (number | null)[], low: number[] = [], high: number[] = []): Series =>
  ({ name, x, y, low, high });

test("curves share an x axis, with gaps where they have no point", () => {
  const found = aligned([series("a", [0, 20], [1, 2], [0, 1], [2, 3]), series("b", [10, 20], [5, null])]);
  expect(found.x).toEqual([0, 10, 20]);
  expect(found.rows[0]).toMatchObject({ y: [1, null, 2], low: [0, null, 1], high: [2, null, 3] });
  expect(found.rows[1]).toMatchObject({ y: [null, 5, null], low: null });
});

test("values that are no numbers are gaps", () => {
  expect(aligned([series("a", [0, 1], [Number.NaN, Number.POSITIVE_INFINITY])]).rows[0]!.y).toEqual([null, null]);
});

test("one chart for each quantity, the mean with its band first", () => {
  const found = charts([series("reward/seed 0", [0], [1]), series("KL", [0], [0.1]), series("reward", [0], [1], [0], [2])]);
  expect(found.map((group) => [group.title, group.series.map((s) => s.name)])).toEqual([
    ["reward", ["reward", "reward/seed 0"]], ["KL", ["KL"]],
  ]);
});

test("the last point, and the step of an alert", () => {
  expect(last(series("a", [0, 1, 2], [1, 4, null]))).toEqual({ x: 1, y: 4 });
  expect(last(series("a", [0], [null]))).toBeNull();
  expect([stepOf("step 40: spawning collapsed 3.4 -> 1.1"), stepOf("no place")]).toEqual([40, null]);
});
