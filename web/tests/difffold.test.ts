import { expect, test } from "vitest";
import { agentsOf, edit, folded, nextChange } from "../src/difffold";
import type { DiffRow } from "../src/shapes.gen";

const row = (what: string, agent = "coder"): DiffRow => ({ what, a: 0, b: 0, type: "message", agent, before: "", after: "" });
const rows = (text: string) =>
  [...text].map((c) => row({ "=": "same", "~": "changed", a: "only-a", b: "only-b", e: "edited" }[c]!));
const shown = (text: string, onlyChanges: boolean, opened?: Set<number>) =>
  folded(rows(text), onlyChanges, 1, opened).map((item) => (item.kind === "row" ? item.row : `${item.from}-${item.to}`));

test("equal stretches fold around changes", () => {
  expect(shown("=======~======", true)).toEqual(["0-6", 6, 7, 8, "9-14"]);
  expect(shown("~=====~", true)).toEqual([0, 1, "2-5", 5, 6]);
});

test("short stretches and everything without the switch stay", () => {
  expect(shown("==~==", true)).toEqual([0, 1, 2, 3, 4]);
  expect(shown("=======~", false)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
});

test("a long one-sided stretch shows its first row and folds the others, until opened", () => {
  expect(shown("=aaaaaa=", false)).toEqual([0, 1, "2-7", 7]);
  expect(shown("=aaaaaa=", false, new Set([2]))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
});

test("every row is there once", () => {
  const text = "====~==aaaaaaaabbbbbb=====e=======";
  const seen = folded(rows(text), true).flatMap((item) =>
    item.kind === "row" ? [item.row] : Array.from({ length: item.to - item.from }, (_, i) => item.from + i));
  expect(seen).toEqual([...text].map((_, i) => i));
});

test("an edit is what stands between what is shared", () => {
  expect(edit("run any shell step it lists", "run only tests")).toEqual({ head: "run ", removed: "any shell step it lists",
    added: "only tests", tail: "" });
  expect(edit("same", "same")).toEqual({ head: "same", removed: "", added: "", tail: "" });
  expect(edit("", "new")).toEqual({ head: "", removed: "", added: "new", tail: "" });
});

test("changes are walked by stretches", () => {
  const all = rows("==~~=a==");
  expect([nextChange(all, -1, 1), nextChange(all, 2, 1), nextChange(all, 5, 1), nextChange(all, 7, -1)]).toEqual([2, 5, -1, 5]);
  expect(agentsOf([row("same", "x"), row("same", "y"), row("same", "y")], 0, 3)).toEqual([["y", 2], ["x", 1]]);
});
