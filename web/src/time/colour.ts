// What a bar's colour says. Always true: every event has one class; class 0 of every scale but `family` means that there is no
// value, which is not a value of 0; a scale's classes can be told apart by lightness or by sign, and the legend names each in
// words.
import { compact, money, signed } from "../numbers";
import { familyOf, FAMILY_NAMES, UNKNOWN_FAMILY } from "../palette";
import { FLAGS } from "../shapes.gen";
import type { Columns } from "../source";
import type { ColourBy } from "../state";

export const COLOUR_BY: readonly ColourBy[] = ["family", "credit", "reward", "tokens", "cost", "taint"];

export interface Scale {
  by: ColourBy;
  /** Class of each event. */
  classes: Uint8Array;
  /** One name per class. */
  names: string[];
}

/** Steps up and down of credit; the middle is nothing. */
export const ARM = 4;
export const STEPS = 5;

/** `values`: credit or reward by row of the columns, NaN where there is none. */
export function scaleOf(by: ColourBy, columns: Columns, types: readonly string[], values: Float32Array | null): Scale {
  if (by === "family") return family(columns, types);
  if (by === "taint") return taint(columns);
  if (by === "tokens") return amounts(by, columns.n, columns.tokens, compact);
  if (by === "cost") return amounts(by, columns.n, columns.cost, money);
  return signedScale(by, columns.n, values ?? new Float32Array(columns.n).fill(NaN));
}

function family(columns: Columns, types: readonly string[]): Scale {
  const of = Uint8Array.from(types, familyOf);
  const classes = new Uint8Array(columns.n);
  for (let i = 0; i < columns.n; i++) classes[i] = of[columns.type[i]!] ?? UNKNOWN_FAMILY;
  return { by: "family", classes, names: FAMILY_NAMES };
}

function taint(columns: Columns): Scale {
  const classes = new Uint8Array(columns.n);
  for (let i = 0; i < columns.n; i++) {
    const flags = columns.flags[i]!;
    classes[i] = flags & FLAGS.untrusted ? 2 : flags & FLAGS.tainted ? 1 : 0;
  }
  return { by: "taint", classes, names: ["clean", "tainted", "source, untrusted"] };
}

/** Five steps, each a fixed factor: amounts differ by orders of magnitude. */
function amounts(by: "tokens" | "cost", n: number, values: Uint32Array | Float32Array, say: (value: number) => string): Scale {
  let least = Infinity;
  let most = 0;
  for (let i = 0; i < n; i++) {
    const value = values[i]!;
    if (value > 0) [least, most] = [Math.min(least, value), Math.max(most, value)];
  }
  const classes = new Uint8Array(n);
  if (most === 0) return { by, classes, names: [`no ${by}`] };
  const edges = Array.from({ length: STEPS }, (_, k) => least * (most / least) ** ((k + 1) / STEPS));
  for (let i = 0; i < n; i++) {
    const value = values[i]!;
    if (value > 0) classes[i] = 1 + Math.max(0, Math.min(STEPS - 1, edges.findIndex((edge) => value <= edge * 1.0001)));
  }
  return { by, classes, names: [`no ${by}`, ...edges.map((edge) => `≤ ${say(edge)}`)] };
}

/** Four steps down, nothing, four steps up, the same size on both sides. */
function signedScale(by: "credit" | "reward", n: number, values: Float32Array): Scale {
  let most = 0;
  for (let i = 0; i < n; i++) if (Math.abs(values[i]!) > most) most = Math.abs(values[i]!);
  const classes = new Uint8Array(n);
  for (let i = 0; i < n; i++) {
    const value = values[i]!;
    if (Number.isNaN(value)) continue;
    if (most > 0) classes[i] = 1 + ARM + Math.sign(value) * Math.ceil((Math.abs(value) / most) * ARM - 1e-6);
  }
  const names = [`no ${by}`];
  const places = most > 0 ? Math.max(2, Math.ceil(1.5 - Math.log10(most))) : 2;
  for (let step = -ARM; step <= ARM; step++) names.push(step === 0 ? "0" : signed((most * step) / ARM, places));
  return { by, classes, names: most > 0 ? names : names.slice(0, 1) };
}

/** Values by row of the columns, of values by number of event. */
export function valuesByRow(columns: Columns, byEvent: Float32Array | null): Float32Array | null {
  if (!byEvent || !columns.numbers) return byEvent;
  return Float32Array.from(columns.numbers, (n) => byEvent[n] ?? NaN);
}

/** Where a method speaks of agents only, each event has its agent's value. */
export function valuesByAgent(columns: Columns, byAgent: readonly (number | null)[]): Float32Array | null {
  if (!byAgent.some((value) => value !== null)) return null;
  return Float32Array.from(columns.agent, (agent) => byAgent[agent] ?? NaN);
}

/** With a filter, what it leaves out is in a second set of classes after the first. `mask` is by number of event. */
export function dimmed(scale: Scale, columns: Columns, mask: Uint8Array | null): Uint8Array {
  if (!mask) return scale.classes;
  const out = scale.classes.slice();
  const count = scale.names.length;
  for (let i = 0; i < out.length; i++) if (mask[columns.numbers ? columns.numbers[i]! : i] !== 1) out[i]! += count;
  return out;
}
