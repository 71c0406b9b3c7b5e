import { expect, test } from "vitest";
import table from "../../tests/numbers.json";
import { bytes, change, compact, count, moment, money, percent, plain, signed, span } from "../src/numbers";

test("numbers are written as the commands write them", () => {
  const write = { compact, money, duration: span, percent, moment };
  for (const [kind, rows] of Object.entries(table)) {
    const show = write[kind as keyof typeof write];
    expect(rows.map(([value]) => show(value as number))).toEqual(rows.map(([, text]) => text));
  }
});

test("what is absent is a dash", () => {
  for (const show of [compact, plain, signed, span, money, percent]) expect(show(null)).toBe("–");
  expect(change(0, 3)).toBe("–");
});

test("large numbers are short", () => {
  expect([0, 950, 1000, 18_240, 999_700, 1_204_000, 3.1, 0.0123].map(compact)).toEqual(
    ["0", "950", "1 k", "18.2 k", "1 M", "1.2 M", "3.1", "0.0123"]);
});

test("signs are always there, and small is not nothing", () => {
  expect([0.31, -0.03, 0, 0.0004].map((value) => signed(value))).toEqual(["+0.31", "−0.03", "0.00", "+4e-4"]);
});

test("times, money and sizes", () => {
  expect([0, 0.0124, 12.44, 59.97, 250, 1192, 7500].map(span)).toEqual(["0 s", "12.4 ms", "12.4 s", "1m00", "4m10", "19m52",
    "2h05"]);
  expect([3.614, 0.0123, 0, -1].map(money)).toEqual(["$3.61", "$0.012", "$0.00", "−$1.00"]);
  expect([12, 18_000, 4_000_000].map(bytes)).toEqual(["12 B", "18 kB", "4 MB"]);
  expect([change(100, 82), change(2, 3)]).toEqual(["−18 %", "+50 %"]);
  expect([count(1, "event"), count(1204, "event")]).toEqual(["1 event", "1,204 events"]);
});
