import { expect, test } from "vitest";
import { Heights, scaled, TALLEST, unscaled, visible } from "../src/heights";

test("rows that were not measured have the estimate", () => {
  const heights = new Heights(10, 20);
  expect(heights.total).toBe(200);
  expect(heights.top(3)).toBe(60);
  expect(heights.at(59)).toBe(2);
  expect(heights.at(60)).toBe(3);
});

test("measured rows move the ones after them", () => {
  const heights = new Heights(10, 20);
  expect(heights.measure(2, 50)).toBe(true);
  expect(heights.measure(2, 50)).toBe(false);
  expect([heights.top(2), heights.top(3), heights.total]).toEqual([40, 90, 230]);
  expect([heights.at(39), heights.at(40), heights.at(89), heights.at(90)]).toEqual([1, 2, 2, 3]);
  heights.measure(2, 10);
  expect(heights.top(3)).toBe(50);
});

test("places beyond the ends are the first and last row", () => {
  const heights = new Heights(7, 20);
  expect(heights.at(-5)).toBe(0);
  expect(heights.at(1e9)).toBe(6);
  expect(visible(heights, 45, 40, 0)).toEqual({ from: 2, to: 5 });
  expect(visible(new Heights(0, 20), 0, 100, 50)).toEqual({ from: 0, to: 0 });
});

test("every place agrees with a plain sum, whatever was measured", () => {
  const heights = new Heights(100, 30);
  const plain = Array.from({ length: 100 }, () => 30);
  let seed = 7;
  const next = () => (seed = (seed * 1103515245 + 12345) % 2147483648);
  for (let i = 0; i < 300; i++) {
    const row = next() % 100;
    const height = 5 + (next() % 200);
    heights.measure(row, height);
    if (Math.abs(plain[row]! - height) >= 0.5) plain[row] = height;
  }
  let sum = 0;
  for (let row = 0; row < 100; row++) {
    expect(heights.top(row)).toBeCloseTo(sum, 6);
    expect(heights.at(sum + 0.5)).toBe(row);
    sum += plain[row]!;
  }
});

test("a million rows scroll from end to end", () => {
  const total = 60_000_000;
  expect(unscaled(TALLEST - 800, total, 800)).toBeCloseTo(total - 800, 3);
  expect(scaled(unscaled(1234, total, 800), total, 800)).toBeCloseTo(1234, 6);
  expect(unscaled(1234, 5000, 800)).toBe(1234);
});
