// Colours of the classes on the canvas. Always true: every class differs from the ground; what a filter leaves out is pale but
// there.
import {
  amountColour, creditColour, FAMILY_COLOURS, GROUND, inkOn, rgb, TEXT, type Shade,
} from "../palette";
import type { ColourBy } from "../state";
import { ARM, STEPS } from "./colour";

export interface Looks {
  shade: Shade;
  ground: string;
  text: string;
  /** Less important text, and lines. */
  quiet: string;
  line: string;
  band: string;
  /** By class; with a filter, the pale ones after. */
  colours: string[];
  inks: string[];
  /** Pixels by cell of the bins: density * 256 + class. */
  pixels: Uint32Array;
}

export function mix(a: string, b: string, share: number): string {
  const [from, to] = [rgb(a), rgb(b)];
  const part = (i: number) => Math.round(from[i]! + (to[i]! - from[i]!) * share).toString(16).padStart(2, "0");
  return `#${part(0)}${part(1)}${part(2)}`;
}

function classColours(by: ColourBy, shade: Shade): string[] {
  const none = mix(GROUND[shade], TEXT[shade], 0.22);
  switch (by) {
    case "family": return [...FAMILY_COLOURS[shade]];
    case "tokens":
    case "cost": return [none, ...Array.from({ length: STEPS }, (_, k) => amountColour((k + 1) / STEPS, shade))];
    case "taint": return [none, FAMILY_COLOURS[shade][1]!, FAMILY_COLOURS[shade][4]!];
    default: return [none, ...Array.from({ length: 2 * ARM + 1 }, (_, k) => creditColour(k - ARM, ARM, shade))];
  }
}

export function looksOf(by: ColourBy, shade: Shade): Looks {
  const [ground, text] = [GROUND[shade], TEXT[shade]];
  const clear = classColours(by, shade);
  const colours = [...clear, ...clear.map((colour) => mix(ground, colour, 0.2))];
  const pixels = new Uint32Array(65536);
  colours.forEach((colour, cls) => {
    for (let density = 1; density < 256; density++) {
      pixels[density * 256 + cls] = pixel(mix(ground, colour, 0.3 + (0.7 * density) / 255));
    }
  });
  return {
    shade, ground, text, quiet: mix(ground, text, 0.66), line: mix(ground, text, 0.14), band: mix(ground, text, 0.045),
    colours, inks: colours.map(inkOn), pixels,
  };
}

/** As canvases keep it: red first in memory, on the little-endian machines that browsers run on. */
function pixel(colour: string): number {
  const [r, g, b] = rgb(colour);
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}
