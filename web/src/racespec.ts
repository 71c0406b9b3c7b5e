// What of a race is shown, as words of an address: `race:ID world=W reward=R1 unit=team decision=O1`. Always true: reading what was
// written gives the same; a filter that is not set keeps every line.
import type { RaceLine } from "./shapes.gen";

export interface RaceSpec {
  id: string;
  /** A world's name; empty: the first. */
  world: string;
  reward: string;
  unit: string;
  decision: string;
}

export type Filter = "reward" | "unit" | "decision";
const WORDS = ["world", "reward", "unit", "decision"] as const;

/** The race that a text of the Compare page names; null where it names runs. An id may hold blanks. */
export function readRace(text: string): RaceSpec | null {
  if (!text.startsWith("race:")) return null;
  const words = text.slice("race:".length).split(" ");
  const found: RaceSpec = { id: "", world: "", reward: "", unit: "", decision: "" };
  while (words.length > 1) {
    const [name = "", value = ""] = words.at(-1)!.split("=");
    const word = WORDS.find((one) => one === name);
    if (!word) break;
    found[word] = value;
    words.pop();
  }
  return { ...found, id: words.join(" ") };
}

export function writeRace(spec: RaceSpec): string {
  return [`race:${spec.id}`, ...WORDS.filter((word) => spec[word]).map((word) => `${word}=${spec[word]}`)].join(" ");
}

/** What a line is filtered by. */
export function valuesOf(line: RaceLine, filter: Filter): string[] {
  return filter === "reward" ? line.families : filter === "unit" ? [line.unit] : line.trains;
}

/** The lines that pass every filter that is set. */
export function kept(lines: RaceLine[], spec: RaceSpec): RaceLine[] {
  const filters: Filter[] = ["reward", "unit", "decision"];
  return lines.filter((line) => filters.every((filter) => !spec[filter] || valuesOf(line, filter).includes(spec[filter])));
}

/** The values that a filter can take, in order. */
export function choices(lines: RaceLine[], filter: Filter): string[] {
  return [...new Set(lines.flatMap((line) => valuesOf(line, filter)))].filter(Boolean).sort();
}
