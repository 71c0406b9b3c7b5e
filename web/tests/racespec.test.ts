import { expect, test } from "vitest";
import { choices, kept, readRace, writeRace } from "../src/racespec";
import type { RaceLine } from "../src/shapes.gen";

const line = (method: string, families: string[], unit: string, trains: string[]) =>
  ({ method, families, unit, trains }) as RaceLine;

test("a race and its filters are words of an address", () => {
  expect(readRace("grpo=runs/a c3=runs/b")).toBeNull();
  expect(readRace("race:my runs/m world=w1 unit=team")).toEqual(
    { id: "my runs/m", world: "w1", reward: "", unit: "team", decision: "" });
  for (const text of ["race:released", "race:runs/methods world=W1 reward=R7 decision=O1", "race:a b=c"]) {
    expect(writeRace(readRace(text)!)).toBe(text);
  }
});

test("lines pass every filter that is set", () => {
  const lines = [line("a", ["R1"], "team", ["O1", "O2"]), line("b", ["R1", "R7"], "agent", ["w"]), line("c", ["R7"], "team", ["w"])];
  const names = (text: string) => kept(lines, readRace(text)!).map((one) => one.method);
  expect(names("race:x")).toEqual(["a", "b", "c"]);
  expect(names("race:x reward=R7")).toEqual(["b", "c"]);
  expect(names("race:x reward=R7 unit=team decision=w")).toEqual(["c"]);
  expect(names("race:x decision=O5")).toEqual([]);
  expect(choices(lines, "reward")).toEqual(["R1", "R7"]);
  expect(choices(lines, "decision")).toEqual(["O1", "O2", "w"]);
});
