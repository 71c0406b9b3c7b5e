import { expect, test } from "vitest";
import { denseColumns, type DenseFields, DenseRows, values } from "../src/dense";
import type { About } from "../src/shapes.gen";

test("a list in each of its forms", () => {
  expect(values({ v: ["a", null, 1.5] })).toEqual(["a", null, 1.5]);
  expect(values({ d: [5, -2, 0], s: 10 })).toEqual([0.5, 0.3, 0.3]);
  expect(values({ of: ["x", true], c: [0, 1, 0] })).toEqual(["x", true, "x"]);
});

test("columns from sums and from what is told, fields from columns", () => {
  const fields: DenseFields = { id: { same: true }, agent: { same: true }, dur: { v: [250], s: 1000, at: [1] }, tokens_in: { v: [3, 4] },
    tokens_out: { v: [10], at: [0] }, tool: { same: true, at: [1] } };
  const columns = denseColumns({ events: 2, edges: 1, ids: { stem: { of: ["e"], c: [0, 0] }, number: { d: [7, 1] } }, columns: {
    t: { d: [0, 5], s: 10 }, dur: { sum: ["dur"] }, tokens: { sum: ["tokens_in", "tokens_out"] }, agent: { v: [0, 1] }, tool: { v: [0, 1] },
    cost: { v: [null, 0.5] }, src: { v: [1] }, dst: { v: [1] }, edge: { v: [2] } } }, fields);
  expect([columns.ids, [...columns.t], [...columns.dur], [...columns.tokens], [...columns.src], [...columns.cost]])
    .toEqual([["e7", "e8"], [0, 0.5], [NaN, 0.25], [13, 4], [0], [NaN, 0.5]]);
  const about = { agents: [{ name: "lead" }, { name: "web" }], tools: ["search"], types: [] } as unknown as About;
  const rows = new DenseRows(fields, columns, about);
  expect(rows.row(0)).toEqual({ id: "e7", agent: "lead", tokens_in: 3, tokens_out: 10 });
  expect(rows.row(1)).toEqual({ id: "e8", agent: "web", dur: 0.25, tokens_in: 4, tool: "search" });
  expect(new DenseRows({}, columns, about).row(0)).toBeUndefined();
});
