// Colours and glyphs. Always true: hue shows the family and the glyph shows the kind, so no meaning rests on hue; credit is blue
// to orange with a printed sign, never red and green. Canvases take the values from here, stylesheets from the custom properties
// that `paint` sets: each colour is written once.
import { FAMILIES } from "./shapes.gen";

export type Shade = "light" | "dark";

/** Names of the five families, by number; the sixth is a type that is in none. */
export const FAMILY_NAMES = [...Object.keys(FAMILIES), "unknown"];
export const UNKNOWN_FAMILY = FAMILY_NAMES.length - 1;

export const FAMILY_COLOURS: Record<Shade, readonly string[]> = {
  light: ["#0B5FA5", "#D55E00", "#AA3377", "#2E8B57", "#3D3D3D", "#767676"],
  dark: ["#88CCEE", "#E69F00", "#CC79A7", "#2FB67C", "#D9D9D9", "#949494"],
};

/** The canvas behind them. */
export const GROUND: Record<Shade, string> = { light: "#FFFFFF", dark: "#12151A" };
export const TEXT: Record<Shade, string> = { light: "#1B1F24", dark: "#E8EAED" };

const FAMILY_OF = new Map(Object.values(FAMILIES).flatMap((types,
  family) => types.map((type) => [type as string, family] as const)));

const GLYPHS: Record<string, string> = {
  orchestrator_decision: "█",
  thinking: "▬",
  spawn: "▷",
  despawn: "■",
  message: "✉",
  tool_call: "⚙",
  tool_result: "⊡",
  return: "◁",
  aggregate: "◆",
  human_intervention: "☉",
  safety_event: "✕",
  delegate: "◇",
};
export const UNKNOWN_GLYPH = "?";
export const TAINT_GLYPH = "▨";

/** The number of a type's family; a type nobody knows is grey, never dropped. */
export function familyOf(type: string): number {
  return FAMILY_OF.get(type) ?? UNKNOWN_FAMILY;
}

export function glyphOf(type: string): string {
  return GLYPHS[type] ?? UNKNOWN_GLYPH;
}

export function familyColour(family: number, shade: Shade): string {
  return FAMILY_COLOURS[shade][family] ?? FAMILY_COLOURS[shade][UNKNOWN_FAMILY]!;
}

type Rgb = readonly [number, number, number];

export function rgb(hex: string): Rgb {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function hex([r, g, b]: Rgb): string {
  return `#${[r, g, b].map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`.toUpperCase();
}

function between(a: string, b: string, share: number): string {
  const [from, to] = [rgb(a), rgb(b)];
  return hex([0, 1, 2].map((i) => from[i]! + (to[i]! - from[i]!) * share) as unknown as Rgb);
}

const CREDIT: Record<Shade, { low: string; zero: string; high: string }> = {
  light: { low: "#B84A00", zero: "#D4D7DB", high: "#0B5FA5" },
  dark: { low: "#F0A050", zero: "#41464D", high: "#88CCEE" },
};

/** Credit on the diverging scale: -scale is orange, 0 is grey, +scale is blue. Values outside are held at the ends. */
export function creditColour(value: number, scale: number, shade: Shade): string {
  const { low, zero, high } = CREDIT[shade];
  if (!Number.isFinite(value)) return zero;
  const share = scale > 0 ? Math.max(-1, Math.min(1, value / scale)) : 0;
  return share < 0 ? between(zero, low, -share) : between(zero, high, share);
}

/** A share of one (tokens, cost) from the ground to the colour of thought. */
export function amountColour(share: number, shade: Shade): string {
  return between(CREDIT[shade].zero, FAMILY_COLOURS[shade][0]!, Math.max(0, Math.min(1, share)));
}

/** Thickness of the line under a credit value, in pixels: the second mark beside hue. */
export function creditLine(value: number, scale: number): number {
  return scale > 0 && Number.isFinite(value) ? Math.round(4 * Math.min(1, Math.abs(value) / scale)) : 0;
}

function luminance(colour: string): number {
  const [r, g, b] = rgb(colour).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as unknown as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast of two colours by WCAG 2: (brighter + 0.05) / (darker + 0.05). */
export function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** Black or white, whichever is easier to read on a colour. */
export function inkOn(colour: string): string {
  return contrast(colour, "#FFFFFF") >= contrast(colour, "#000000") ? "#FFFFFF" : "#000000";
}

/** Gives the stylesheet the colours: --think, --act, ... and --credit-low, --credit-high. */
export function paint(element: HTMLElement, shade: Shade): void {
  FAMILY_NAMES.forEach((name, family) => element.style.setProperty(`--${name}`, familyColour(family, shade)));
  element.style.setProperty("--credit-low", CREDIT[shade].low);
  element.style.setProperty("--credit-high", CREDIT[shade].high);
  element.style.setProperty("--ground", GROUND[shade]);
  element.style.setProperty("--text", TEXT[shade]);
}
