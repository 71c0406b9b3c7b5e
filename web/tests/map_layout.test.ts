import { expect, test } from "vitest";
import { FOLD_OVER, linesOf, rowOfAgent, rowsOf, type Row } from "../src/map/layout";
import { arcsAt } from "../src/map/Lines";
import { place } from "../src/map/picture";
import { move, sumOf } from "../src/map/tree";
import type { Agent } from "../src/shapes.gen";

function agent(name: string, role: string | null, parent: number, depth: number, spawn: number,
  more: Partial<Agent> = {}): Agent {
  return {
    name, label: name, role, parent, depth, spawn, events: 1, tokens_own: 10, tokens_total: 10, cost_own: null, cost_total: null, busy_s: null,
      start: 0, end: 1,
    path_share: 0, is_outside: false, ...more,
  };
}

const team = [
  agent("boss", "orchestrator", -1, 0, -1), agent("coder", "coder", 0, 1, 9), agent("researcher", "researcher", 0, 1, 2),
  ...Array.from({ length: 6 }, (_, i) => agent(`reader-${i}`, "reader", 2, 2, 20 - i)),
    agent("user", null, -1, 0, -1, { is_outside: true }),
];
const picture = (rows: readonly Row[]): string[] => rows.map((row) => `${"  ".repeat(row.depth)}${row.label}`);

test("children stand in order of spawn, twins fold, who is outside comes last", () => {
  expect(picture(rowsOf(team))).toEqual(["boss", "  researcher", "    reader ×6", "  coder", "user"]);
  expect(rowsOf(team).map((row) => row.parent)).toEqual([-1, 0, 1, 0, -1]);
});

test("a group opens to its members in order of spawn, an agent closes over its children", () => {
  const group = rowsOf(team)[2]!;
  const open = rowsOf(team, new Set([group.key]));
  expect(picture(open).slice(2, 5)).toEqual(["    reader ×6", "      reader-5", "      reader-4"]);
  expect(picture(rowsOf(team, new Set([rowsOf(team)[1]!.key])))).toEqual(["boss", "  researcher", "  coder", "user"]);
});

test("every agent has a row, open or closed", () => {
  const closed = rowsOf(team, new Set([rowsOf(team)[1]!.key]));
  expect([...rowOfAgent(closed, team)]).toEqual([0, 2, 1, 1, 1, 1, 1, 1, 1, 3]);
  const open = rowsOf(team, new Set([rowsOf(team)[2]!.key]));
  expect(rowOfAgent(open, team)[3]).toBe(picture(open).indexOf("      reader-0"));
});

test("a thousand agents open as a few rows with counts, depth by depth", () => {
  const many = [agent("boss", "orchestrator", -1, 0, -1)];
  for (let m = 0; m < 20; m++) many.push(agent(`manager-${m}`, "manager", 0, 1, m));
  for (let w = 0; w < 979; w++) many.push(agent(`worker-${w}`, w % 2 ? "reader" : "writer", 1 + (w % 20), 2, 100 + w));
  expect(many.length).toBeGreaterThan(FOLD_OVER);
  const begun = performance.now();
  const rows = rowsOf(many);
  expect(performance.now() - begun).toBeLessThan(100);
  expect(picture(rows)).toEqual(["boss", "  manager ×20", "    writer ×490", "    reader ×489"]);
  expect(rows.reduce((sum, row) => sum + row.agents.length, 0)).toBe(1000);
  expect(new Set(rowOfAgent(rows, many)).size).toBe(4);
  const opened = rowsOf(many, new Set([rows[1]!.key]));
  expect(opened.length).toBe(2 + 20 + 20);
});

test("makers in a circle, or unknown ones, lose nobody", () => {
  const odd = [agent("a", null, 1, 0, 1), agent("b", null, 0, 0, 2), agent("c", null, 99, 0, 3), agent("d", null, 3, 0, 4)];
  expect(rowsOf(odd).map((row) => row.label).sort()).toEqual(["a", "b", "c", "d"]);
});

test("lines are counted by pair and kind; arcs are those of one row", () => {
  const columns = {
    src: new Uint32Array([0, 0, 1, 2, 0]), dst: new Uint32Array([1, 1, 2, 3, 3]), edge: new Uint8Array([0, 0, 1, 1, 2]),
      agent: new Uint32Array([0, 1, 2, 2]),
  };
  const lines = linesOf(columns, ["message", "return", "temporal"]);
  expect(lines).toEqual([{ from: 0, to: 1, kind: "message", count: 2 }, { from: 1, to: 2, kind: "merge", count: 1 }]);
  const places = new Int32Array([0, 1, 2]);
  expect(arcsAt(lines, new Set(["message", "merge"]), places, 2)).toEqual([{ from: 1, to: 2, kind: "merge", count: 1 }]);
  expect(arcsAt(lines, new Set(["message"]), places, 2)).toEqual([]);
});

test("keys of a tree", () => {
  const rows = rowsOf(team);
  const toggled: string[] = [];
  const go = (key: string, at: number): number | null => move(key, rows, at, (row) => toggled.push(row.label));
  expect([go("ArrowDown", 0), go("ArrowUp", 0), go("End", 0), go("ArrowRight", 0), go("ArrowLeft", 2), go("z", 0)]).toEqual([1, 0,
    4, 1, 1, null]);
  expect([go("ArrowRight", 2), go("ArrowLeft", 0)]).toEqual([2, 0]);
  expect(toggled).toEqual(["reader ×6", "boss"]);
});

test("a sum of nothing is nothing, not 0", () => {
  const row = rowsOf(team)[2]!;
  expect(sumOf(row, () => null)).toBeNull();
  expect(sumOf(row, (i) => (i === row.agents[0] ? null : 2))).toBe(10);
});

test("in the drawing a parent stands in the middle of its children, leaves one below the other, areas follow tokens", () => {
  const rows = rowsOf(team);
  const nodes = place(rows, [0, 25, 100, 25, 0]);
  expect(nodes.map((node) => [node.x, node.y])).toEqual([[0, 0.5], [1, 0], [2, 0], [1, 1], [0, 2]]);
  expect(nodes[2]!.r / nodes[1]!.r).toBeCloseTo(2, 6);
});
