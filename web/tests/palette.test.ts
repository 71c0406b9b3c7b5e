import { expect, test } from "vitest";
import {
  FAMILY_COLOURS, FAMILY_NAMES, GROUND, TEXT, UNKNOWN_FAMILY, amountColour, contrast, creditColour, creditLine, familyColour,
    familyOf, glyphOf, inkOn, rgb,
} from "../src/palette";
import { EVENT_TYPES } from "../src/shapes.gen";

const SHADES = ["light", "dark"] as const;

test("contrast by hand: black on white is 21, a colour on itself 1", () => {
  expect(contrast("#000000", "#FFFFFF")).toBeCloseTo(21, 6);
  expect(contrast("#D55E00", "#D55E00")).toBe(1);
});

test("families stand out from their ground: 3.8 in light, 5.9 in dark, the grey of unknown 4.5", () => {
  for (const [shade, least] of [["light", 3.8], ["dark", 5.9]] as const) {
    for (const colour of FAMILY_COLOURS[shade].slice(0, 5)) expect(contrast(colour, GROUND[shade]),
      `${colour} in ${shade}`).toBeGreaterThanOrEqual(least);
    expect(contrast(FAMILY_COLOURS[shade][5]!, GROUND[shade])).toBeGreaterThanOrEqual(4.5);
    expect(contrast(TEXT[shade], GROUND[shade])).toBeGreaterThanOrEqual(7);
  }
});

test("the colours are those of the specification", () => {
  expect(FAMILY_COLOURS.light.slice(0, 5)).toEqual(["#0B5FA5", "#D55E00", "#AA3377", "#2E8B57", "#3D3D3D"]);
  expect(FAMILY_COLOURS.dark.slice(0, 5)).toEqual(["#88CCEE", "#E69F00", "#CC79A7", "#2FB67C", "#D9D9D9"]);
  expect(FAMILY_NAMES).toEqual(["think", "act", "coordinate", "merge", "stop", "unknown"]);
});

test("every type has a family and a glyph of its own; an unknown one is grey", () => {
  expect(new Set(EVENT_TYPES.map(glyphOf)).size).toBe(EVENT_TYPES.length);
  for (const type of EVENT_TYPES) expect(familyOf(type)).toBeLessThan(UNKNOWN_FAMILY);
  expect(familyOf("teleport")).toBe(UNKNOWN_FAMILY);
  expect(familyColour(99, "dark")).toBe(FAMILY_COLOURS.dark[UNKNOWN_FAMILY]);
  expect(glyphOf("teleport")).toBe("?");
});

test.each(SHADES)("credit: orange below, blue above, the middle is grey, the ends hold (%s)", (shade) => {
  const [low, zero, high] = [-1, 0, 1].map((value) => creditColour(value, 1, shade)) as [string, string, string];
  expect(creditColour(-7, 1, shade)).toBe(low);
  expect(creditColour(NaN, 1, shade)).toBe(zero);
  expect(creditColour(1, 0, shade)).toBe(zero);
  expect(rgb(low)[0]).toBeGreaterThan(rgb(low)[2]);
  expect(rgb(high)[2]).toBeGreaterThan(rgb(high)[0]);
  for (const end of [low, high]) expect(contrast(end, GROUND[shade])).toBeGreaterThanOrEqual(4.5);
  expect([creditLine(0.5, 1), creditLine(-1, 1), creditLine(NaN, 1)]).toEqual([2, 4, 0]);
});

test("ink on any colour can be read", () => {
  for (const shade of SHADES) {
    for (const colour of [...FAMILY_COLOURS[shade], ...[-1, -0.5, 0, 0.5, 1].map((v) => creditColour(v, 1, shade)),
      amountColour(0.5, shade)]) {
      expect(contrast(inkOn(colour), colour)).toBeGreaterThanOrEqual(4.5);
    }
  }
});
