import { expect, test } from "vitest";
import { contrast, rgb } from "../src/palette";
import { COLOUR_BY } from "../src/time/colour";
import { looksOf, mix } from "../src/time/looks";
import { totalsOf } from "../src/time/totals";
import { columns } from "./time_fixture";

test("every class can be seen, and ink can be read on it", () => {
  for (const shade of ["light", "dark"] as const) {
    for (const by of COLOUR_BY) {
      const looks = looksOf(by, shade);
      const half = looks.colours.length / 2;
      looks.colours.slice(0, half).forEach((colour, k) => {
        expect(contrast(colour, looks.ground), `${by} ${k} ${shade}`).toBeGreaterThan(1.35);
        expect(contrast(colour, looks.inks[k]!), `${by} ${k} ${shade}`).toBeGreaterThan(4.4);
      });
      expect(contrast(looks.quiet, looks.ground)).toBeGreaterThan(4.5);
    }
  }
});

test("pixels grow towards the colour with density", () => {
  const looks = looksOf("family", "light");
  const [r, g, b] = rgb(looks.colours[1]!);
  expect(looks.pixels[255 * 256 + 1]).toBe(((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
  expect(looks.pixels[1]).toBe(0);
});

test("mixing", () => expect(mix("#000000", "#FFFFFF", 0.5)).toBe("#808080"));

test("totals of a range: what touches it, and what is not known", () => {
  const rows = [{ t: 0, dur: 5, tokens: 10, cost: 1 }, { t: 4, agent: 1, tokens: 5 }, { t: 9, flags: 6, cost: 2 }, { t: 20 }];
  const events = columns(rows);
  expect(totalsOf(events, 3, 10, Float32Array.of(0.5, NaN, -0.25, 9))).toEqual(
    { events: 3, agents: 2, tokens: 15, cost: 3, isLeast: true, failed: 1, tainted: 1, credit: 0.25 });
  expect(totalsOf(events, 6, 10, null)).toMatchObject({ events: 1, isLeast: false, credit: null });
});
